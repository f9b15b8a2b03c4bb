//! Pure: the two text formats in which metrics are served, and which of them a client wants.

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// Prometheus' own, version 0.0.4.
    Prometheus,
}

impl Format {
    /// The format that an `Accept` header prefers. Whoever does not ask for OpenMetrics, as curl and
    /// a browser, gets the older one.
    pub fn wanted(accept: Option<&str>) -> Self {
        let offers = accept.unwrap_or_default().split(',');
        let best = |media_type: &str| {
            let of_type = offers.clone().filter_map(|offer| weight(offer, media_type));
            of_type.max().unwrap_or(0)
        };
        let open = best("application/openmetrics-text");
        if open > 0 && open >= best("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// `text`, which is OpenMetrics 1.0, in this format.
    pub fn of_open_metrics(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Prometheus => prometheus(&text),
        }
    }
}

/// How much an offer such as `text/plain;version=0.0.4;q=0.5` wants `media_type`, in thousandths; none
/// where it is of another type, or of a version that is not served.
fn weight(offer: &str, media_type: &str) -> Option<u32> {
    let mut parts = offer.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(media_type) {
        return None;
    }
    let mut weight = 1.0_f64;
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim() {
            "q" => weight = value.trim().parse().ok()?,
            "version" if !["0.0.1", "0.0.4", "1.0.0"].contains(&value.trim()) => return None,
            _ => {}
        }
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a weight is between 0 and 1, and is made so"
    )]
    let thousandths = (weight.clamp(0.0, 1.0) * 1_000.0) as u32;
    Some(thousandths)
}

/// Counters and infos have their suffix in the name there, and units, exemplars and the end mark are
/// not known.
fn prometheus(open: &str) -> String {
    let mut lines = Vec::new();
    let mut help = "";
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        let words = [(); 4].map(|()| words.next().unwrap_or_default());
        match words {
            ["#", "HELP", _, text] => help = text,
            ["#", "TYPE", name, kind] => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                lines.push(format!("# HELP {name}{suffix} {help}"));
                lines.push(format!("# TYPE {name}{suffix} {kind}"));
            }
            ["#", ..] => {}
            _ => lines.push(without_exemplar(line).to_owned()),
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A sample without what follows its value. A ` # ` within a label's value is not an exemplar's.
fn without_exemplar(sample: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in sample.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_format_that_it_prefers() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, wanted) in [
            (None, Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/plain"), Format::Prometheus),
            (Some("text/html,*/*;q=0.8"), Format::Prometheus),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (
                Some("Application/OpenMetrics-Text; version=1.0.0"),
                Format::OpenMetrics,
            ),
            (Some(prometheus_3), Format::OpenMetrics),
            (
                Some("application/openmetrics-text;q=0.1, text/plain;q=0.9"),
                Format::Prometheus,
            ),
            (
                Some("application/openmetrics-text; version=2.0.0"),
                Format::Prometheus,
            ),
            (Some("application/openmetrics-text;q=0"), Format::Prometheus),
            (
                Some("application/openmetrics-text;q=much"),
                Format::Prometheus,
            ),
            (Some(";;=,,"), Format::Prometheus),
        ] {
            assert_eq!(Format::wanted(accept), wanted, "{accept:?}");
        }
    }

    #[test]
    fn the_older_format_has_suffixes_in_names_and_no_exemplars() {
        let open = "# HELP a_b Calls.\n# TYPE a_b counter\na_b_total{x=\"1 # {\\\"}\"} 7\n\
            # HELP v Version.\n# TYPE v info\nv_info{version=\"1\"} 1\n\
            # HELP t_seconds Time.\n# TYPE t_seconds histogram\n# UNIT t_seconds seconds\n\
            t_seconds_bucket{le=\"1.0\"} 2 # {job=\"n/j\"} 0.5\nt_seconds_bucket{le=\"+Inf\"} 2\n\
            # EOF\n";
        let older = "# HELP a_b_total Calls.\n# TYPE a_b_total counter\na_b_total{x=\"1 # {\\\"}\"} 7\n\
            # HELP v_info Version.\n# TYPE v_info gauge\nv_info{version=\"1\"} 1\n\
            # HELP t_seconds Time.\n# TYPE t_seconds histogram\n\
            t_seconds_bucket{le=\"1.0\"} 2\nt_seconds_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(Format::Prometheus.of_open_metrics(open.to_owned()), older);
        assert_eq!(Format::OpenMetrics.of_open_metrics(open.to_owned()), open);
    }
}
