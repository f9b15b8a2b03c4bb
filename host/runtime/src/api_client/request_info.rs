//! Pure: derives verb and resource of a request to the API server from its method and path.

/// Resource of a path without one: discovery, version, health.
const NONE: &str = "none";

/// The verb of RBAC, and the resource with its subresource, such as `ipujobs/status`.
pub(super) fn request_info(
    method: &str,
    path: &str,
    query: Option<&str>,
) -> (&'static str, String) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let is_known = match parts.next() {
        Some("api") => parts.next().is_some(),
        Some("apis") => parts.next().is_some() && parts.next().is_some(),
        _ => false,
    };
    let mut rest: Vec<&str> = if is_known {
        parts.collect()
    } else {
        Vec::new()
    };
    // A Namespace is itself a resource. The rest of the path is in that namespace.
    if rest.first() == Some(&"namespaces") && rest.len() > 2 && !is_part_of_namespace(rest[2]) {
        rest.drain(..2);
    }
    let has_name = rest.len() > 1;
    let resource = match (rest.first(), rest.get(2)) {
        (Some(resource), Some(part)) => format!("{resource}/{part}"),
        (Some(resource), None) => (*resource).to_owned(),
        (None, _) => NONE.to_owned(),
    };
    (verb(method, has_name, query), resource)
}

fn verb(method: &str, has_name: bool, query: Option<&str>) -> &'static str {
    let watches = |query: &str| {
        query
            .split('&')
            .any(|part| matches!(part, "watch=true" | "watch=1"))
    };
    match method {
        "GET" if query.is_some_and(watches) => "watch",
        "GET" if has_name => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if has_name => "delete",
        "DELETE" => "deletecollection",
        _ => "other",
    }
}

fn is_part_of_namespace(part: &str) -> bool {
    matches!(part, "status" | "finalize")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method, path and query of a request, and its verb and resource.
    type Case = (
        &'static str,
        &'static str,
        Option<&'static str>,
        &'static str,
        &'static str,
    );

    const CASES: [Case; 16] = [
        ("GET", "/api/v1/namespaces/n/pods/p", None, "get", "pods"),
        (
            "GET",
            "/api/v1/pods",
            Some("&watch=true&x=1"),
            "watch",
            "pods",
        ),
        (
            "GET",
            "/api/v1/pods",
            Some("labelSelector=watch%3Dtrue"),
            "list",
            "pods",
        ),
        (
            "POST",
            "/api/v1/namespaces/n/pods",
            Some(""),
            "create",
            "pods",
        ),
        (
            "POST",
            "/api/v1/namespaces/n/pods/p/exec",
            None,
            "create",
            "pods/exec",
        ),
        (
            "PUT",
            "/apis/graphcore.ai/v1alpha1/namespaces/n/ipujobs/j/status",
            None,
            "update",
            "ipujobs/status",
        ),
        (
            "PATCH",
            "/apis/graphcore.ai/v1alpha1/ipupartitions/p",
            None,
            "patch",
            "ipupartitions",
        ),
        (
            "DELETE",
            "/apis/graphcore.ai/v1alpha1/ipupartitions/p",
            None,
            "delete",
            "ipupartitions",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/n/pods",
            None,
            "deletecollection",
            "pods",
        ),
        (
            "GET",
            "/api/v1/namespaces/kube-system",
            None,
            "get",
            "namespaces",
        ),
        ("GET", "/api/v1/namespaces", None, "list", "namespaces"),
        (
            "PUT",
            "/api/v1/namespaces/n/status",
            None,
            "update",
            "namespaces/status",
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            None,
            "create",
            "tokenreviews",
        ),
        ("GET", "/version", None, "list", NONE),
        ("GET", "/", None, "list", NONE),
        ("OPTIONS", "//", None, "other", NONE),
    ];

    #[test]
    fn verb_and_resource_of_requests() {
        for (method, path, query, verb, resource) in CASES {
            let info = request_info(method, path, query);
            assert_eq!(info, (verb, resource.to_owned()), "{method} {path}");
        }
    }
}
