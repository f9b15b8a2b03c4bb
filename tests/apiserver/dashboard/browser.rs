//! The page of the dashboard in a real Chromium: each view in light and dark, without an error in the console, and
//! without a violation that axe-core finds.

use std::env;
use std::path::PathBuf;

use cluster::files::make_dir;
use cluster::wait::eventually;
use release::guests::checkout;
use tests::chromium::{self, Browser, Page};
use tests::pictures::{FOLDER, PICTURES, Picture, SCHEMES, WITHOUT_RIGHTS};

use super::fixture::{Dashboard, fill};
use crate::kubectl_ipu::Office;

/// The folder of the pictures: that of the documents if the user requests it.
fn pictures() -> PathBuf {
    let folder = match env::var_os("UPDATE_SCREENSHOTS") {
        Some(_) => FOLDER,
        None => "dist/dashboard",
    };
    let folder = checkout().join(folder);
    make_dir(&folder).unwrap();
    folder
}

/// Waits until the page shows all of this.
pub(super) async fn shows(page: &mut Page, parts: &[&str]) {
    eventually(&format!("the page shows {parts:?}"), async || {
        let text = page.text().await.map_err(|error| error.to_string())?;
        let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("no {missing:?} in {text}"))
        }
    })
    .await;
}

/// Draws what the page shows in light and dark, once it shows the texts of the picture. axe-core finds no violation.
async fn draw(page: &mut Page, picture: Picture) {
    shows(page, picture.texts).await;
    let axe = chromium::axe().unwrap();
    for scheme in SCHEMES {
        page.prefer(scheme).await.unwrap();
        let violations = page.violations(&axe).await.unwrap();
        let file = picture.file(scheme);
        assert!(violations.is_empty(), "{file}: {violations:#?}");
        page.picture(&pictures().join(file)).await.unwrap();
    }
}

#[tokio::test]
async fn each_view_is_readable_by_everybody_in_light_and_dark() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    fill(&office.client).await;
    let dashboard = Dashboard::start(&office, "root", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    for picture in PICTURES {
        page.go(&dashboard.url(picture.place)).await.unwrap();
        draw(&mut page, picture).await;
    }
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
}

#[tokio::test]
async fn keys_lead_from_the_queue_to_a_partition_and_the_page_reports_the_end_of_rights() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "alice");
    fill(&office.client).await;
    let dashboard = Dashboard::start(&office, "alice", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    page.go(&dashboard.url("#controllers")).await.unwrap();
    shows(&mut page, &["3 V-IPU controllers"]).await;
    page.press("2").await.unwrap();
    shows(&mut page, &["2 requests wait"]).await;
    page.press("j").await.unwrap();
    page.press("Enter").await.unwrap();
    shows(&mut page, &["Owner: IPUJob team-"]).await;
    page.press("?").await.unwrap();
    shows(&mut page, &["next and previous row"]).await;
    // It closes the help.
    page.press("Enter").await.unwrap();
    assert!(page.problems().is_empty(), "{:#?}", page.problems());

    page.evaluate("location.hash = 'queue'").await.unwrap();
    let revoke = ["delete", "clusterrolebinding", "alice"];
    office.admin.kubectl(&revoke).unwrap();
    draw(&mut page, WITHOUT_RIGHTS).await;
    // The API server refuses the watches of the dashboard's server, and no request of the page.
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
}
