//! The page, as it is embedded in the program.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the page: path, type and text.
pub(super) type Asset = (&'static str, &'static str, &'static str);

/// A file of the folder `page`, at the path of its name.
macro_rules! file {
    ($name:literal, $type:expr) => {
        ($name, $type, include_str!(concat!("../../page/", $name)))
    };
}

/// The files of the page. Each script is a module.
pub(super) const ASSETS: &[Asset] = &[
    ("", HTML, include_str!("../../page/index.html")),
    file!("colours.css", CSS),
    file!("page.css", CSS),
    file!("drawings.css", CSS),
    file!("page.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("controllers.js", SCRIPT),
    file!("elements.js", SCRIPT),
    file!("goodput.js", SCRIPT),
    file!("hold.js", SCRIPT),
    file!("job.js", SCRIPT),
    file!("keys.js", SCRIPT),
    file!("map.js", SCRIPT),
    file!("overview.js", SCRIPT),
    file!("partitions.js", SCRIPT),
    file!("parts.js", SCRIPT),
    file!("place.js", SCRIPT),
    file!("plots.js", SCRIPT),
    file!("policies.js", SCRIPT),
    file!("queue.js", SCRIPT),
    file!("states.js", SCRIPT),
    file!("timeline.js", SCRIPT),
    file!("tip.js", SCRIPT),
    file!("views.js", SCRIPT),
    file!("icon.svg", SVG),
];

/// A file of the page.
pub(super) fn response(type_: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, type_)], text).into_response()
}
