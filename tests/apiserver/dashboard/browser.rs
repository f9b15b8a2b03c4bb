//! The page of the dashboard in a real Chromium: each view in light and dark, without an error in
//! the console, and without a violation that axe-core finds.

use std::env;
use std::path::PathBuf;

use cluster::files::make_dir;
use cluster::wait::eventually;
use release::guests::checkout;
use tests::chromium::{self, Browser, Page};
use tests::pictures::{FOLDER, PICTURES, Picture, SCHEMES, WIDTHS, WITHOUT_RIGHTS};

use super::fixture::{Dashboard, fill};
use crate::kubectl_ipu::Office;

/// The folder of a picture: that of the documents if they show it and the user requests it.
fn folder(is_documented: bool) -> PathBuf {
    let folder = match env::var_os("UPDATE_SCREENSHOTS") {
        Some(_) if is_documented => FOLDER,
        _ => "dist/dashboard",
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

/// Draws what the page shows in each width, in light and dark, once it shows the texts of the
/// picture. axe-core finds no violation, and nothing is beyond the right edge. The commands of
/// kubectl are behind a key.
async fn draw(page: &mut Page, picture: Picture) {
    shows(page, picture.texts).await;
    let axe = chromium::axe().unwrap();
    for width in WIDTHS {
        page.resize(width).await.unwrap();
        for scheme in SCHEMES {
            page.prefer(scheme).await.unwrap();
            let violations = page.violations(&axe).await.unwrap();
            let file = picture.file(width, scheme);
            assert!(violations.is_empty(), "{file}: {violations:#?}");
            let wide = page.evaluate("document.documentElement.scrollWidth");
            assert_eq!(wide.await.unwrap(), width, "{file} scrolls to the side");
            let folder = folder(picture.is_documented(width));
            page.picture(&folder.join(file)).await.unwrap();
        }
    }
    page.press("c").await.unwrap();
    shows(page, &["The same with kubectl"]).await;
    shows(page, picture.commands).await;
    // It closes the commands.
    page.press("Enter").await.unwrap();
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
async fn keys_lead_from_view_to_view_and_to_a_partition_and_the_page_reports_the_end_of_rights() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "alice");
    fill(&office.client).await;
    let dashboard = Dashboard::start(&office, "alice", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    page.go(&dashboard.url("#controllers")).await.unwrap();
    shows(&mut page, &["3 V-IPU controllers"]).await;
    page.press("4").await.unwrap();
    shows(&mut page, &["9 partitions"]).await;
    page.press("j").await.unwrap();
    page.press("Enter").await.unwrap();
    shows(&mut page, &["Owner: IPUJob team-"]).await;
    page.press("?").await.unwrap();
    shows(&mut page, &["next and previous row"]).await;
    // It closes the help.
    page.press("Enter").await.unwrap();
    assert!(page.problems().is_empty(), "{:#?}", page.problems());

    page.press("3").await.unwrap();
    shows(&mut page, &["2 requests wait"]).await;
    let revoke = ["delete", "clusterrolebinding", "alice"];
    office.admin.kubectl(&revoke).unwrap();
    draw(&mut page, WITHOUT_RIGHTS).await;
    // The overview does not say that nothing is in use, or that all is well.
    page.press("1").await.unwrap();
    shows(
        &mut page,
        &[
            "not known: see Not shown",
            "Not all of the cluster is known",
        ],
    )
    .await;
    // The API server refuses the watches of the dashboard's server, and no request of the page.
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
}

#[tokio::test]
async fn pointer_and_focus_explain_the_map_and_no_row_moves_under_the_pointer() {
    let office = Office::new().await;
    office.grant("clusterrolebinding", "cluster-admin", "root");
    fill(&office.client).await;
    let dashboard = Dashboard::start(&office, "root", &[]).await;
    let browser = Browser::start().await.unwrap();
    let mut page = browser.open().await.unwrap();
    page.go(&dashboard.url("#controllers")).await.unwrap();
    shows(&mut page, &["3 V-IPU controllers"]).await;
    page.point("a[data-block='team-a.train-0']").await.unwrap();
    let train = [
        "train in namespace team-a",
        "16 IPUs (0 to 15), running",
        "created",
    ];
    shows(&mut page, &train).await;
    let focus = "document.querySelector(\"a[data-block='team-a.serve-0']\").focus()";
    page.evaluate(focus).await.unwrap();
    shows(&mut page, &["4 IPUs (16 to 19), ready"]).await;

    page.go(&dashboard.url("#job/team-a/train")).await.unwrap();
    shows(&mut page, &["nothing: the job runs"]).await;
    page.point(".lane .event.is-failure").await.unwrap();
    shows(&mut page, &["the registry did not answer"]).await;

    page.go(&dashboard.url("#queue")).await.unwrap();
    shows(&mut page, &["2 requests wait"]).await;
    let second = "[data-key='team-b.late-0']";
    page.point(second).await.unwrap();
    let top = format!("document.querySelector(\"{second}\").getBoundingClientRect().top");
    let before = page.evaluate(&top).await.unwrap();
    let delete = ["delete", "ipupartition", "team-a.large-0"];
    office.admin.kubectl(&delete).unwrap();
    shows(&mut page, &["It shows the changes when the pointer leaves"]).await;
    assert_eq!(page.evaluate(&top).await.unwrap(), before);
    page.point("h1").await.unwrap();
    shows(&mut page, &["1 request waits"]).await;
    assert!(page.problems().is_empty(), "{:#?}", page.problems());
}
