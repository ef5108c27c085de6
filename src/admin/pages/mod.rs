//! The pages of the HTTP interface, for people. The pages work without JavaScript.
//!
//! askama escapes every value. Nothing here marks a text as safe, so a client identifier or a topic
//! never becomes markup.
//!
//! | file | concern |
//! |---|---|
//! | `assets`, `views`, `prose` | the files that the pages load, and the texts |
//! | `problems` | what is wrong with the broker, and what to do |
//! | `frame`, `page` | the frame of every page, and the page of an error |
//! | `entry` | the rules by which a request belongs to a login |
//! | `timeline`, `subscribers`, `gauges`, `store`, `charts` | parts of pages, too |
//! | all others | one page each, or a few |

mod answer;
mod assets;
mod charts;
pub(super) mod client_facts;
mod client_list;
mod clients;
mod cluster;
mod confirm;
pub(super) mod docs;
pub(super) mod entry;
pub(super) mod far_problems;
mod far_sides;
mod frame;
mod gauges;
mod letters;
mod lists;
pub(super) mod live;
mod login;
mod many_letters;
mod overview;
pub(super) mod page;
pub(super) mod problems;
mod prose;
mod settings;
mod shared_groups;
mod store;
mod subscribers;
mod theme;
mod timeline;
mod topics;
mod traces;
pub(super) mod views;
mod wheel;
mod whereabouts;

use actix_web::web::{self, ServiceConfig};

pub(super) fn add_routes(app: &mut ServiceConfig) {
    app.route("/", web::get().to(overview::overview))
        .route("/clients", web::get().to(client_list::list))
        .route("/clients", web::post().to(client_list::disconnect_all))
        .route("/clients/{id}", web::get().to(clients::one))
        .route("/clients/{id}/disconnect", web::post().to(clients::disconnect))
        .route("/clients/{id}/end", web::post().to(clients::end))
        .route("/clients/{id}/redeliver", web::post().to(clients::redeliver))
        .route("/clients/{id}/message", web::post().to(clients::on_message))
        .route("/bridges", web::get().to(far_sides::bridges_page))
        .route("/sinks", web::get().to(far_sides::sinks_page))
        .route("/cluster", web::get().to(cluster::page))
        .route("/dead-letters", web::get().to(letters::list))
        .route("/dead-letters", web::post().to(many_letters::act))
        .route("/dead-letters/{id}", web::get().to(letters::one))
        .route("/dead-letters/{id}/republish", web::post().to(letters::republish))
        .route("/dead-letters/{id}/delete", web::post().to(letters::delete))
        .route("/topics", web::get().to(topics::page))
        .route("/shared-groups", web::get().to(shared_groups::page))
        .route("/topics/delete", web::post().to(topics::delete))
        .route("/settings", web::get().to(settings::page))
        .route("/settings", web::post().to(settings::read_again))
        .route("/objectives", web::get().to(lists::objectives))
        .route("/checks", web::get().to(lists::checks))
        .route("/slow", web::get().to(lists::slow))
        .route("/audit", web::get().to(lists::audit))
        .route("/where", web::get().to(whereabouts::page))
        .route("/traces", web::get().to(traces::list))
        .route("/traces", web::post().to(traces::begin))
        .route("/traces/{number}", web::get().to(traces::one))
        .route("/traces/{number}/end", web::post().to(traces::end))
        .route("/redelivery", web::get().to(timeline::timeline))
        .route("/deadlines", web::get().to(wheel::wheel))
        .route("/login", web::get().to(login::page))
        .route("/login", web::post().to(login::log_in))
        .route("/login/code", web::post().to(login::log_in_by_code))
        .route("/logout", web::post().to(login::log_out))
        .route("/theme", web::post().to(theme::change_theme))
        .route("/assets/{file}", web::get().to(assets::asset));
}
