//! Pure: the pictures of the dashboard in the documents. One test draws them, and another compares
//! them with the documents.

/// A picture of a view, in each colour scheme.
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    /// Name of the picture.
    pub name: &'static str,
    /// The part of the URL after the secret.
    pub place: &'static str,
    /// Texts of the view.
    pub texts: &'static [&'static str],
    /// The commands of kubectl that show the same.
    pub commands: &'static [&'static str],
}

/// Widths of the page in pixels: a telephone, a tablet, and a screen, which the documents show.
pub const WIDTHS: [u32; 3] = [400, 800, 1_280];

/// The width of the pictures in the documents.
const DOCUMENTED: u32 = 1_280;

/// The view that the documents show in all widths.
const IN_ALL_WIDTHS: &str = "overview";

/// Colour schemes of a browser.
pub const SCHEMES: [&str; 2] = ["light", "dark"];

/// Folder of the pictures in the repository.
pub const FOLDER: &str = "charts/ipu-operator/docs/images";

/// The queue after the rights of the user have ended.
pub const WITHOUT_RIGHTS: Picture = Picture {
    name: "without-rights",
    place: "#queue",
    texts: &[
        "This page does not follow the cluster any more",
        "start kubectl ipu dashboard again",
    ],
    commands: &["kubectl get ipupartitions --sort-by=.metadata.creationTimestamp"],
};

/// Pictures of the views.
pub const PICTURES: [Picture; 9] = [
    Picture {
        name: "overview",
        place: "",
        texts: &[
            "40 % full: 76 of 192 IPUs in use",
            "2 requests wait for 128 IPUs",
            "team-a/large waits longest: 64 IPUs",
            "of the allocated IPU-hours ran",
            "it is cordoned by admin: replaced on Friday",
        ],
        commands: &[
            "kubectl ipu top controllers",
            "kubectl ipu goodput --since 24h",
        ],
    },
    Picture {
        name: "controllers",
        place: "#controllers",
        texts: &[
            "3 V-IPU controllers",
            "pod1:8090",
            "largest free 16",
            "places not reported",
            "it is cordoned by admin: replaced on Friday",
            "Legend",
        ],
        commands: &["kubectl get vipucontrollers"],
    },
    Picture {
        name: "queue",
        place: "#queue",
        texts: &[
            "2 requests wait for 128 IPUs",
            "team-a/large",
            "The free IPUs of pod1:8090 are reserved for it",
            "smaller than the 64 requested",
        ],
        commands: &[
            "kubectl get ipupartitions --sort-by=.metadata.creationTimestamp",
            "kubectl ipu why JOB",
        ],
    },
    Picture {
        name: "partitions",
        place: "#partitions",
        texts: &["9 partitions", "team-a.train-0", "resetting"],
        commands: &[
            "kubectl get ipupartitions --output wide",
            "kubectl ipu top jobs",
        ],
    },
    Picture {
        name: "partition",
        place: "#partition/team-a.train-0",
        texts: &[
            "Partition team-a.train-0",
            "Owner: IPUJob team-a/train",
            "all Pods run",
        ],
        commands: &[
            "kubectl get ipupartition team-a.train-0 --output yaml",
            "kubectl ipu why train --namespace team-a",
            "kubectl get pods --namespace team-a --selector graphcore.ai/job-uid=",
        ],
    },
    Picture {
        name: "job",
        place: "#job/team-a/train",
        texts: &[
            "What to do next",
            "nothing: the job runs",
            "waiting 2s",
            "train-worker-1",
            "Failed to pull the image",
        ],
        commands: &["kubectl ipu why train --namespace team-a"],
    },
    Picture {
        name: "goodput",
        place: "#goodput",
        texts: &["all namespaces", "The last 24 hours"],
        commands: &["kubectl ipu goodput --since 24h --by namespace"],
    },
    Picture {
        name: "policies",
        place: "#policies",
        texts: &["1 policy", "best-fit", "117 equal, 2 different"],
        commands: &["kubectl get ipupolicies --output wide"],
    },
    Picture {
        name: "namespace",
        place: "?namespace=team-b#partitions",
        texts: &["5 partitions in namespace team-b", "team-b.broken-0"],
        commands: &["kubectl ipu top jobs --namespace team-b"],
    },
];

/// The pictures in the documents, each with its width and its colour scheme.
pub fn documented() -> impl Iterator<Item = (Picture, u32, &'static str)> {
    let all = PICTURES.into_iter().chain([WITHOUT_RIGHTS]);
    let drawn = all.flat_map(|picture| WIDTHS.map(|width| (picture, width)));
    drawn
        .filter(|(picture, width)| picture.is_documented(*width))
        .flat_map(|(picture, width)| SCHEMES.map(|scheme| (picture, width, scheme)))
}

impl Picture {
    /// Whether the documents show it in this width.
    pub fn is_documented(&self, width: u32) -> bool {
        width == DOCUMENTED || self.name == IN_ALL_WIDTHS
    }

    /// Name of the file in a width and a colour scheme.
    pub fn file(&self, width: u32, scheme: &str) -> String {
        let name = self.name;
        match width {
            DOCUMENTED => format!("dashboard-{name}-{scheme}.png"),
            _ => format!("dashboard-{name}-{width}-{scheme}.png"),
        }
    }
}
