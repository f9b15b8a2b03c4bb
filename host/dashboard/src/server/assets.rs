//! The page, as it is embedded in the program.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The files of the page: path, type and text. Each script is a module.
pub(super) const ASSETS: [(&str, &str, &str); 8] = [
    ("", HTML, include_str!("../../page/index.html")),
    ("page.css", CSS, include_str!("../../page/page.css")),
    ("page.js", SCRIPT, include_str!("../../page/page.js")),
    ("api.js", SCRIPT, include_str!("../../page/api.js")),
    (
        "elements.js",
        SCRIPT,
        include_str!("../../page/elements.js"),
    ),
    ("place.js", SCRIPT, include_str!("../../page/place.js")),
    ("views.js", SCRIPT, include_str!("../../page/views.js")),
    ("icon.svg", SVG, include_str!("../../page/icon.svg")),
];

/// A file of the page.
pub(super) fn response(type_: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, type_)], text).into_response()
}
