//! The files that the pages load: the style, the icon and the live updates.
//!
//! The URL of a file has a hash of its content. So a browser may keep the file for ever, and asks
//! for the new one after an upgrade.

use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::{HttpResponse, web};

/// A file that is a part of the program.
pub(super) struct Asset {
    name: &'static str,
    extension: &'static str,
    content_type: &'static str,
    content: &'static str,
    hash: u64,
}

pub(super) static STYLE: Asset =
    Asset::new("style", "css", "text/css; charset=utf-8", include_str!("templates/style.css"));
pub(super) static ICON: Asset =
    Asset::new("icon", "svg", "image/svg+xml", include_str!("templates/icon.svg"));

pub(super) static SCRIPT: Asset =
    Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("templates/live.js"));

static ALL: [&Asset; 3] = [&STYLE, &ICON, &SCRIPT];

impl Asset {
    const fn new(
        name: &'static str,
        extension: &'static str,
        content_type: &'static str,
        content: &'static str,
    ) -> Asset {
        Asset { name, extension, content_type, content, hash: hash(content.as_bytes()) }
    }

    /// Returns the path, such as `/assets/style-0123456789abcdef.css`.
    pub(super) fn path(&self) -> String {
        format!("/assets/{}", self.file())
    }

    fn file(&self) -> String {
        format!("{}-{:016x}.{}", self.name, self.hash, self.extension)
    }
}

/// Returns FNV-1a of the content. The hash only tells versions apart, so no secret is needed.
const fn hash(content: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < content.len() {
        hash = (hash ^ content[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

/// Answers with a file. Needs no login, because the login page loads files, too.
pub(super) async fn asset(file: web::Path<String>) -> HttpResponse {
    match ALL.into_iter().find(|asset| asset.file() == *file) {
        Some(asset) => HttpResponse::Ok()
            .insert_header((CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")))
            .content_type(asset.content_type)
            .body(asset.content),
        None => HttpResponse::NotFound().finish(),
    }
}
