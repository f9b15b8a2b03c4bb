//! Pure: the admin's settings of the rules.

use guest_sdk::settings;

/// The admin's settings of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum IPUs of one instance of a job.
    pub max_ipus_per_job: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_ipus_per_job: 64,
        }
    }
}

impl Settings {
    /// Reads settings such as `{"maxIpusPerJob": 64}`. Missing keys have their defaults, and keys
    /// of other policies are ignored. The error names the key, the value and the rule.
    pub fn parse(json: &str) -> Result<Self, String> {
        let settings = settings::parse_object(json)?;
        let mut parsed = Self::default();
        if let Some(limit) = settings.get("maxIpusPerJob") {
            parsed.max_ipus_per_job = limit
                .as_u64()
                .and_then(|limit| u32::try_from(limit).ok())
                .filter(|limit| *limit > 0)
                .ok_or_else(|| {
                    format!(
                        "maxIpusPerJob is {limit}; it must be a whole number from 1 to {}",
                        u32::MAX
                    )
                })?;
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused_by_name() {
        assert_eq!(Settings::parse("{}"), Ok(Settings::default()));
        assert_eq!(
            Settings::parse(r#"{"maxIpusPerJob": 256, "other": true}"#),
            Ok(Settings {
                max_ipus_per_job: 256
            })
        );
        for (json, expected) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"maxIpusPerJob": 0}"#, "maxIpusPerJob is 0"),
            (r#"{"maxIpusPerJob": "64"}"#, r#"maxIpusPerJob is "64""#),
            (r#"{"maxIpusPerJob": 4294967296}"#, "from 1 to 4294967295"),
        ] {
            let error = Settings::parse(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
