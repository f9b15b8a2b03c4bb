//! Pure: the parameters in the URL of a request.

use ipu_api::dns1123::is_subdomain;
use ipu_text::sanitize;

use crate::view::{Order, Page};

/// Default number of rows of a page.
const LIMIT: usize = 50;

/// Most rows of a page.
const LIMIT_MAX: usize = 256;

/// Most rows that can be left out: more than there can be.
const OFFSET_MAX: usize = 10_000_000;

/// Longest text of a parameter that a message repeats, in bytes.
const SHOWN: usize = 64;

/// Longest address of a V-IPU controller.
const CONTROLLER_MAX: usize = 300;

/// The parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Owners in this namespace alone.
    pub namespace: Option<String>,
    /// Partitions on this V-IPU controller alone.
    pub controller: Option<String>,
    /// The order of V-IPU controllers.
    pub order: Order,
    /// Shown part of the rows.
    pub page: Page,
}

/// A parameter is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The request has no such parameter.
    #[error("parameter \"{0}\" is unknown here: remove it")]
    Unknown(String),
    /// It occurs twice.
    #[error("parameter {0} is repeated: give it once")]
    Repeated(&'static str),
    /// It is not a number of rows.
    #[error("parameter {name} is \"{value}\", which is no whole number from {least} to {most}")]
    Number {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The smallest one.
        least: usize,
        /// The largest one.
        most: usize,
    },
    /// It is not a name.
    #[error("parameter namespace is \"{0}\", which is no name of a namespace")]
    Namespace(String),
    /// It is not an address.
    #[error("parameter controller is longer than 300 bytes: give host:port")]
    Controller,
    /// It is no order.
    #[error("parameter sort is \"{0}\": give address or problems")]
    Sort(String),
}

impl Parameters {
    /// Reads the query of a URL. `known` are the parameters of the request.
    pub fn parse(query: &str, known: &[&'static str]) -> Result<Self, ParameterError> {
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some(name) = known.iter().find(|known| **known == name) else {
                return Err(ParameterError::Unknown(sanitize(&name, SHOWN)));
            };
            if found.iter().any(|(other, _)| other == name) {
                return Err(ParameterError::Repeated(name));
            }
            found.push((*name, value.into_owned()));
        }
        let value = |name: &str| {
            let mut all = found.iter();
            all.find(|(found, _)| *found == name)
                .map(|(_, value)| value.as_str())
                .filter(|value| !value.is_empty())
        };
        let namespace = value("namespace");
        if let Some(wrong) = namespace.filter(|name| !is_subdomain(name)) {
            return Err(ParameterError::Namespace(sanitize(wrong, SHOWN)));
        }
        let controller = value("controller");
        if controller.is_some_and(|address| address.len() > CONTROLLER_MAX) {
            return Err(ParameterError::Controller);
        }
        Ok(Self {
            namespace: namespace.map(ToOwned::to_owned),
            controller: controller.map(ToOwned::to_owned),
            order: order(value("sort"))?,
            page: Page {
                offset: number("offset", value("offset"), 0, (0, OFFSET_MAX))?,
                limit: number("limit", value("limit"), LIMIT, (1, LIMIT_MAX))?,
            },
        })
    }
}

fn order(value: Option<&str>) -> Result<Order, ParameterError> {
    match value {
        None | Some("address") => Ok(Order::Address),
        Some("problems") => Ok(Order::Problems),
        Some(other) => Err(ParameterError::Sort(sanitize(other, SHOWN))),
    }
}

fn number(
    name: &'static str,
    value: Option<&str>,
    default: usize,
    (least, most): (usize, usize),
) -> Result<usize, ParameterError> {
    let Some(value) = value else {
        return Ok(default);
    };
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse::<usize>().ok().filter(|_| is_plain);
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| ParameterError::Number {
            name,
            value: sanitize(value, SHOWN),
            least,
            most,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["controller", "limit", "namespace", "offset", "sort"];

    #[test]
    fn parameters_are_read_and_bounded() {
        let parsed = Parameters::parse("namespace=team-a&offset=100&limit=200", &KNOWN).unwrap();
        let page = Page {
            offset: 100,
            limit: 200,
        };
        let expected = Parameters {
            namespace: Some("team-a".to_owned()),
            controller: None,
            order: Order::Address,
            page,
        };
        assert_eq!(parsed, expected);
        let parsed = Parameters::parse("namespace=&controller=pod1%3A8090", &KNOWN).unwrap();
        assert_eq!(parsed.namespace, None);
        assert_eq!(parsed.controller.as_deref(), Some("pod1:8090"));
        let sorted = Parameters::parse("sort=problems", &KNOWN).unwrap();
        assert_eq!(sorted.order, Order::Problems);
        assert_eq!((parsed.page.offset, parsed.page.limit), (0, LIMIT));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_rule() {
        for (query, expected) in [
            (
                "limit=0",
                "limit is \"0\", which is no whole number from 1 to 256",
            ),
            ("limit=257", "from 1 to 256"),
            ("offset=-1", "offset is \"-1\""),
            ("offset=+1", "offset is \" 1\""),
            ("offset=%2B1", "offset is \"+1\""),
            ("offset=99999999999999999999999999", "from 0 to 10000000"),
            ("offset=10000001", "from 0 to 10000000"),
            ("offset=1&offset=2", "offset is repeated"),
            ("sort=size", "sort is \"size\": give address or problems"),
            ("verbose=1", "\"verbose\" is unknown here"),
            (
                "namespace=Team%20A",
                "\"Team A\", which is no name of a namespace",
            ),
            ("namespace=%0a", "no name of a namespace"),
        ] {
            let error = Parameters::parse(query, &KNOWN).unwrap_err().to_string();
            assert!(error.contains(expected), "{query}: {error}");
        }
        let long = format!("controller={}", "a".repeat(301));
        let error = Parameters::parse(&long, &KNOWN);
        assert_eq!(error, Err(ParameterError::Controller));
    }
}
