//! Pure: the pictures of the dashboard in the documents. One test draws them, and another compares them with the
//! documents.

/// A picture of a view, in each colour scheme.
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    /// Name of the picture.
    pub name: &'static str,
    /// The part of the URL after the secret.
    pub place: &'static str,
    /// Texts of the view, with the commands of kubectl that show the same.
    pub texts: &'static [&'static str],
}

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
        "The same with kubectl: kubectl get ipupartitions --sort-by=.metadata.creationTimestamp",
    ],
};

/// Pictures of the views.
pub const PICTURES: [Picture; 7] = [
    Picture {
        name: "controllers",
        place: "#controllers",
        texts: &[
            "3 V-IPU controllers",
            "pod1:8090",
            "largest free 16",
            "because: replaced on Friday (admin)",
            "Legend",
            "The same with kubectl: kubectl get vipucontrollers",
        ],
    },
    Picture {
        name: "queue",
        place: "#queue",
        texts: &[
            "2 requests wait for 128 IPUs",
            "IPUJob team-a/large",
            "smaller than the 64 requested",
            "The same with kubectl: kubectl get ipupartitions --sort-by=.metadata.creationTimestamp",
            "The same with kubectl: kubectl ipu why JOB",
        ],
    },
    Picture {
        name: "partitions",
        place: "#partitions",
        texts: &[
            "8 partitions",
            "team-a.train-0",
            "resetting",
            "The same with kubectl: kubectl get ipupartitions --output wide",
            "The same with kubectl: kubectl ipu top jobs",
        ],
    },
    Picture {
        name: "partition",
        place: "#partition/team-a.train-0",
        texts: &[
            "Partition team-a.train-0",
            "Owner: IPUJob team-a/train",
            "all Pods run",
            "The same with kubectl: kubectl get ipupartition team-a.train-0 --output yaml",
            "The same with kubectl: kubectl ipu why train --namespace team-a",
            "The same with kubectl: kubectl get pods --namespace team-a --selector graphcore.ai/job-uid=",
        ],
    },
    Picture {
        name: "goodput",
        place: "#goodput",
        texts: &[
            "all namespaces",
            "The last 24 hours",
            "The same with kubectl: kubectl ipu goodput --since 24h --by namespace",
        ],
    },
    Picture {
        name: "policies",
        place: "#policies",
        texts: &[
            "1 policy",
            "best-fit",
            "117 equal, 2 different",
            "The same with kubectl: kubectl get ipupolicies --output wide",
        ],
    },
    Picture {
        name: "namespace",
        place: "?namespace=team-b#partitions",
        texts: &[
            "4 partitions in namespace team-b",
            "team-b.broken-0",
            "The same with kubectl: kubectl ipu top jobs --namespace team-b",
        ],
    },
];

/// All pictures.
pub fn all() -> impl Iterator<Item = Picture> {
    PICTURES.into_iter().chain([WITHOUT_RIGHTS])
}

impl Picture {
    /// Name of the file in a colour scheme.
    pub fn file(&self, scheme: &str) -> String {
        format!("dashboard-{}-{scheme}.png", self.name)
    }
}
