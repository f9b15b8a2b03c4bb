//! Tests of the pinned versions of the Go tools.

use super::*;
use crate::kubernetes::Kubernetes;

#[test]
fn the_version_is_found_in_a_line_and_in_a_block() {
    let line = "module tools\n\nrequire a.b/c v1.2.3\n";
    let block = "require (\n\ta.b/other v9.9.9\n\ta.b/c v1.2.3 // indirect\n)\n";
    for text in [line, block] {
        assert_eq!(required_version(text, "a.b/c").as_deref(), Some("1.2.3"));
        assert_eq!(required_version(text, "a.b"), None);
    }
}

#[test]
fn every_tool_is_pinned_with_checksums() {
    for kubernetes in Kubernetes::ALL {
        let settings = settings(kubernetes);
        for tool in &TOOLS {
            let pins = tool.pins(&settings);
            let version = version(tool, &pins).unwrap();
            let sums = read(&pins.join("go.sum")).unwrap();
            let line = format!("{} v{version} h1:", tool.module);
            assert!(sums.contains(&line), "{line}");
        }
    }
}

#[test]
fn each_kubernetes_is_of_its_minor_version_in_all_its_modules() {
    for kubernetes in Kubernetes::ALL {
        let pins = TOOLS[0].pins(&settings(kubernetes));
        let version = version(&TOOLS[0], &pins).unwrap();
        assert!(kubernetes.is(&version), "{kubernetes:?}: {version}");
        let staged = format!(" v0.{}", version.strip_prefix("1.").unwrap());
        let go_mod = read(&pins.join("go.mod")).unwrap();
        for line in go_mod.lines().filter(|line| line.contains("=>")) {
            assert!(line.ends_with(&staged), "{line}");
        }
    }
}

fn settings(kubernetes: Kubernetes) -> Settings {
    Settings {
        cache: "/cache".into(),
        run: "/run".into(),
        checkout: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        kubernetes,
        has_oldest_kubelet: false,
    }
}

#[test]
fn helm_takes_a_cluster_for_the_version_of_its_client() {
    let helm = TOOLS.iter().find(|tool| tool.name == "helm").unwrap();
    let sums = "k8s.io/client-go v0.36.0/go.mod h1:x=\n\
                k8s.io/client-go v0.37.0 h1:y=\n\
                k8s.io/client-go v0.37.0/go.mod h1:z=\n";
    let flags = link_flags(helm, "3.22.0", sums);
    for package in ["chartutil", "lint/rules"] {
        let name = format!("helm.sh/helm/v3/pkg/{package}.k8sVersion");
        assert!(flags.contains(&format!("-X {name}Major=1 ")), "{flags}");
        assert!(flags.contains(&format!("-X {name}Minor=37")), "{flags}");
    }
    assert_eq!(
        client_minor(include_str!("../../../../tools/cluster/go.sum")),
        Some("37")
    );
}

#[test]
fn kubernetes_knows_its_version() {
    assert_eq!(
        link_flags(&TOOLS[0], "1.37.2", ""),
        "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 \
         -X k8s.io/component-base/version.gitMajor=1 \
         -X k8s.io/component-base/version.gitMinor=37"
    );
}

#[test]
fn go_names_a_program_by_the_last_part_of_its_path() {
    for (package, expected) in [
        ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("./coredns", "coredns"),
    ] {
        let program = Program {
            name: "renamed",
            package,
        };
        assert_eq!(program.built_name(), expected);
    }
}
