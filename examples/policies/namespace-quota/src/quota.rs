//! Pure: how many IPUs a namespace may have, and whether more fit.

use serde_json::Value;

/// Settings of the admin: `{"quota": {"ipus": 16, "namespaceLabel": "ipu-quota"}}`. Other keys are
/// for other policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    ipus: Option<u32>,
    label: Option<String>,
}

impl Settings {
    /// Reads the settings, or says what is wrong with them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let settings: Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let quota = &settings["quota"];
        let ipus = match &quota["ipus"] {
            Value::Null => None,
            found => Some(number(found).ok_or_else(|| {
                format!("quota.ipus is {found}; write a number of IPUs such as 16")
            })?),
        };
        let label = match &quota["namespaceLabel"] {
            Value::Null => None,
            Value::String(label) => Some(label.clone()),
            found => {
                return Err(format!(
                    "quota.namespaceLabel is {found}; write the key of a label such as \"ipu-quota\""
                ));
            }
        };
        Ok(Self { ipus, label })
    }

    /// Most IPUs of a namespace with these labels: what its label says, else what the admin set for
    /// all; none for no limit. Labels that are not known may set a smaller one.
    fn limit(&self, labels: Option<&[(String, String)]>) -> Result<Option<u32>, Unknown> {
        let Some(key) = &self.label else {
            return Ok(self.ipus);
        };
        let label = labels.ok_or(Unknown)?.iter().find(|(name, _)| name == key);
        let own = label.and_then(|(_, value)| value.parse().ok());
        Ok(own.or(self.ipus))
    }
}

/// The labels of the namespace are not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unknown;

/// A namespace, as the operator knows it.
#[derive(Clone, Copy, Debug)]
pub struct Namespace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels; none while they are not known.
    pub labels: Option<&'a [(String, String)]>,
    /// The IPUs that it uses; none while they are not known.
    pub used: Option<u32>,
}

/// IPUs that must fit so that the request is of use: those of all partitions of its gang that have
/// no place yet.
pub fn wanted(ipus: u32, gang: Option<(u32, u32)>) -> u32 {
    let missing = gang.map_or(1, |(size, held)| size.saturating_sub(held).max(1));
    ipus.saturating_mul(missing)
}

/// Whether a namespace may have `more` IPUs, or why not. What is not known is not allowed: a quota
/// that opens when the host starts would be none.
pub fn allowed(settings: &Settings, namespace: Namespace<'_>, more: u32) -> Result<(), String> {
    let Namespace { name, labels, used } = namespace;
    let limit = settings.limit(labels).map_err(|Unknown| {
        format!("the labels of namespace {name}, which may set its limit, are not known yet")
    })?;
    let Some(limit) = limit else { return Ok(()) };
    let Some(used) = used else {
        return Err(format!(
            "it is not known yet how many IPUs namespace {name} uses of its {limit}"
        ));
    };
    if more == 0 || used.saturating_add(more) <= limit {
        return Ok(());
    }
    Err(format!(
        "namespace {name} uses {used} IPUs and may have {limit}: {more} more wait until some are \
         released"
    ))
}

/// IPUs that an IPUJob asks for.
pub fn of_job(job: &Value) -> u32 {
    let field = |name: &str| number(&job["spec"][name]);
    let instances = field("jobInstances").unwrap_or(1);
    instances.saturating_mul(field("ipusPerJobInstance").unwrap_or(0))
}

/// A number, also one that is written as text.
fn number(value: &Value) -> Option<u32> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_of_the_namespace_goes_before_the_limit_of_all() {
        let text = r#"{"quota": {"ipus": 16, "namespaceLabel": "ipus"}, "maxIpusPerJob": 64}"#;
        let settings = Settings::parse(text).unwrap();
        let labelled = [("ipus".to_owned(), "4".to_owned())];
        assert_eq!(settings.limit(Some(&labelled)), Ok(Some(4)));
        assert_eq!(settings.limit(Some(&[])), Ok(Some(16)));
        assert_eq!(settings.limit(None), Err(Unknown));
        let without = Settings::parse("{}").unwrap();
        assert_eq!(without.limit(Some(&labelled)), Ok(None));
        assert_eq!(without.limit(None), Ok(None), "no label sets a limit");
        for bad in [
            r#"{"quota": {"ipus": -1}}"#,
            r#"{"quota": {"namespaceLabel": 5}}"#,
            "x",
        ] {
            assert!(Settings::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_more_than_the_limit_and_nothing_that_is_not_known() {
        let settings = |ipus| Settings { ipus, label: None };
        let allowed = |ipus, used, more| {
            let namespace = Namespace {
                name: "a",
                labels: None,
                used,
            };
            super::allowed(&settings(ipus), namespace, more)
        };
        assert!(allowed(None, None, 64).is_ok());
        assert!(allowed(Some(16), Some(12), 4).is_ok());
        assert!(allowed(Some(16), Some(20), 0).is_ok());
        let refused = allowed(Some(16), Some(12), 8).unwrap_err();
        assert!(
            refused.contains("uses 12 IPUs and may have 16"),
            "{refused}"
        );
        assert!(allowed(Some(16), None, 1).is_err());
        let labelled = Settings {
            ipus: None,
            label: Some("ipus".to_owned()),
        };
        let unknown = Namespace {
            name: "a",
            labels: None,
            used: Some(0),
        };
        let refused = super::allowed(&labelled, unknown, 1).unwrap_err();
        assert!(refused.contains("are not known yet"), "{refused}");
    }

    #[test]
    fn a_gang_counts_as_a_whole() {
        assert_eq!(wanted(4, None), 4);
        assert_eq!(wanted(4, Some((4, 0))), 16);
        assert_eq!(wanted(4, Some((4, 3))), 4);
        assert_eq!(wanted(4, Some((4, 4))), 4);
    }

    #[test]
    fn the_size_of_a_job_is_instances_by_ipus() {
        let job = json!({"spec": {"jobInstances": 3, "ipusPerJobInstance": "4"}});
        assert_eq!(of_job(&job), 12);
        assert_eq!(of_job(&json!({"spec": {"ipusPerJobInstance": 8}})), 8);
        assert_eq!(of_job(&json!(null)), 0);
    }
}
