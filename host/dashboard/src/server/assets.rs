//! The page, as it is embedded in the program.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// The files of the page: path, type and text.
pub(super) const ASSETS: [(&str, &str, &str); 4] = [
    (
        "",
        "text/html; charset=utf-8",
        include_str!("../../page/index.html"),
    ),
    (
        "page.css",
        "text/css; charset=utf-8",
        include_str!("../../page/page.css"),
    ),
    (
        "page.js",
        "text/javascript; charset=utf-8",
        include_str!("../../page/page.js"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_str!("../../page/icon.svg"),
    ),
];

/// A file of the page.
pub(super) fn response(type_: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, type_)], text).into_response()
}
