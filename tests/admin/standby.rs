//! The interface of a node of a cluster that stands by. Two nodes share the model of an engine: `a`
//! owns the cell, and `b` is asked.

use crate::api::{json_of, token};
use crate::http::{LOCAL, request, request_with_body};
use crate::memory_engine::MemoryCluster;
use crate::pages::cookie_of;
use crate::support::until;
use homing::admin::{AdminServer, api_paths};
use homing::broker::standby::StandbyConfig;
use homing::cluster::commands::{self, InitialSessions};
use homing::cluster::messages::NodeEvent;
use homing::cluster::node::Node;
use homing::config::{Admin, Cluster, Config, ConfigRefusal, KeySources, Loaded, Sources};
use homing::finding::Finding;
use homing::ownership::Role;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// What a node that stands by answers by itself.
const OWN: [&str; 18] = [
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /api/v1/doctor",
    "GET /api/v1/config",
    "POST /api/v1/config/reload",
    "GET /api/v1/log/level",
    "PUT /api/v1/log/level",
    "POST /api/v1/login",
    "POST /api/v1/login/code",
    "POST /api/v1/logout",
    "GET /api/v1/openapi.json",
    "GET /api/v1/docs",
    "GET /api/problems/{slug}",
    "GET /api/v1/me",
    "GET /api/v1/version",
    "GET /api/v1/cluster",
    "GET /api/v1/audit",
];

const PAGES_OF_A: &str = "http://10.0.0.11:11883";

struct Plant {
    a: Node,
    b: Node,
    server: AdminServer,
    config: Arc<StandbyConfig>,
    file: PathBuf,
    admin: SocketAddr,
    token: String,
    directory: TempDir,
}

fn settings(node: &str, suspect_after: Duration) -> Cluster {
    Cluster {
        name: "plant".to_owned(),
        node: node.to_owned(),
        nodes: vec!["a".to_owned(), "b".to_owned()],
        lease: Duration::from_secs(2),
        suspect_after,
        ..Cluster::default()
    }
}

fn read(file: &Path) -> Result<Loaded, ConfigRefusal> {
    Sources::new().file(file).load()
}

impl Plant {
    fn start() -> Plant {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let cluster = MemoryCluster::new();
        // Only `a` ever claims: the other one waits for a day, once the cell has an owner.
        let of_a = settings("a", Duration::from_secs(3));
        commands::init(&cluster.node(0), &of_a, InitialSessions::None(None)).expect("a new cluster");
        let join = |settings: &Cluster| {
            let data = path(&settings.node);
            fs::create_dir_all(&data).expect("a directory");
            // A process that another test spawns has the lock, too, until it runs its program.
            until("the lock of the directory", || {
                match Node::join(settings, Arc::new(cluster.node(0)), &data) {
                    Ok(node) => Some(node),
                    Err(error) if error.to_string().contains("is in use by another process") => None,
                    Err(error) => panic!("{error}"),
                }
            })
        };
        let a = join(&of_a);
        until("a has claimed the cell", || (a.view.facts().role == Role::Recovering).then_some(()));
        let b = join(&settings("b", Duration::from_secs(86_400)));
        a.view.note_pages(PAGES_OF_A.to_owned());
        a.view.note_config(&Config::default());
        let file = path("homing.toml");
        fs::write(&file, "[limits]\nqueue_messages = 7\n").expect("a file");
        let tokens = path("credentials");
        let token = token(&tokens, "admin");
        let options = Admin {
            addresses: vec!["127.0.0.1:0".parse().expect("an address")],
            credentials: tokens.display().to_string(),
            ..Admin::default()
        };
        let server = AdminServer::start(&options, None).expect("it starts").expect("an address");
        let admin = server.urls().next().expect("a URL");
        let admin = admin.trim_start_matches("http://").parse().expect("an address");
        let (loaded, of_reader) = (read(&file).expect("it is valid"), file.clone());
        let sources = KeySources::of_start(&loaded);
        let config = StandbyConfig::new(loaded.config, sources, Arc::new(move || read(&of_reader)));
        let config = Arc::new(config);
        server.joined(Arc::clone(&b.view), Arc::clone(&config), Arc::new(Vec::<Finding>::new));
        b.view.note_config(&config.config());
        let of_reloads = Arc::clone(&b.view);
        config.watch(Box::new(move |config| of_reloads.note_config(config)));
        let plant = Plant { a, b, server, config, file, admin, token, directory };
        until("b knows the owner and its pages", || plant.b.view.owner_pages());
        plant
    }

    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let headers = format!("{LOCAL}Authorization: Bearer {}\r\n", self.token);
        request_with_body(self.admin, method, path, &headers, "")
    }

    fn page(&self, path: &str, cookie: &str) -> (u16, String) {
        request_with_body(self.admin, "GET", path, &format!("{LOCAL}Cookie: {cookie}\r\n"), "")
    }

    /// Ends the nodes, whose threads would write into a directory that is gone.
    fn end(self) {
        let Plant { a, b, server, directory, .. } = self;
        drop(server);
        for mut node in [a, b] {
            node.door().leave();
            loop {
                match node.events.blocking_recv() {
                    // `b` claims the cell as soon as `a` has left it, and may be about to when it is told.
                    Some(NodeEvent::Flush) => node.door().flushed(),
                    Some(NodeEvent::Left(_)) | None => break,
                    Some(_) => {}
                }
            }
        }
        drop(directory);
    }
}

#[test]
fn a_standby_answers_what_it_can_and_names_the_owner_for_all_else() {
    let plant = Plant::start();
    for (method, path, least) in api_paths() {
        let row = format!("{method} {path}");
        if OWN.contains(&&*row) {
            continue;
        }
        let of_nobody = request(
            plant.admin,
            method,
            &path.replace(['{', '}'], "x"),
            &format!("{LOCAL}Content-Length: 0\r\n"),
        );
        assert_eq!(of_nobody.0, 401, "{row} for nobody: {}", of_nobody.1);
        assert!(least.is_some(), "{row}");
        let (status, answer) = plant.ask(method, &path.replace(['{', '}'], "x"));
        let problem = json_of(&answer);
        assert_eq!(
            (status, problem["type"].as_str()),
            (503, Some("/api/problems/standby")),
            "{row}: {answer}"
        );
        assert_eq!(
            (problem["owner"].as_str(), problem["admin"].as_str()),
            (Some("a"), Some(PAGES_OF_A)),
            "{row}"
        );
    }
    for row in OWN {
        let (method, path) = row.split_once(' ').expect("two words");
        let (status, answer) = plant.ask(method, &path.replace("{slug}", "standby"));
        assert_ne!(json_of(&answer)["type"], "/api/problems/standby", "{row}");
        match row {
            "GET /readyz" => assert_eq!(status, 503, "{answer}"),
            _ if method == "GET" => assert_eq!(status, 200, "{row}: {answer}"),
            // Some of these need a body.
            _ => assert!(status < 500, "{row}: {answer}"),
        }
    }
    assert!(plant.ask("GET", "/readyz").1.contains(r#""phase":"standby""#));
    plant.end();
}

#[test]
fn a_standby_shows_the_cluster_and_where_it_differs_until_it_is_reloaded() {
    let plant = Plant::start();
    let of_b = || {
        let answer = json_of(&plant.ask("GET", "/api/v1/cluster").1);
        answer["nodes"].as_array().and_then(|nodes| nodes.iter().find(|node| node["node"] == "b").cloned())
    };
    let drift = || of_b().map(|node| node["drift_keys"].clone());
    until("b differs", || drift().filter(|keys| *keys == serde_json::json!(["limits.queue_messages"])));
    let (_, metrics) = request(plant.admin, "GET", "/metrics", LOCAL);
    for sample in [
        "homing_cluster_info{node=\"b\",role=\"following\",cell=\"0\"} 1\n",
        "homing_cluster_drift{node=\"a\"} 0\n",
        "homing_cluster_drift{node=\"b\"} 1\n",
        "homing_cluster_alarm 0\n",
    ] {
        assert!(metrics.contains(sample), "{sample} in {metrics}");
    }
    assert!(
        metrics.contains("process_resident_memory_bytes") && !metrics.contains("homing_sessions"),
        "{metrics}"
    );
    let families = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let families: BTreeSet<&str> = families.filter(|name| name.starts_with("homing_cluster_")).collect();
    let documented = include_str!("../../docs/metrics.md").lines();
    let documented = documented.filter_map(|line| line.strip_prefix("| `homing_cluster_")?.split('`').next());
    let documented: BTreeSet<String> = documented.map(|name| format!("homing_cluster_{name}")).collect();
    assert_eq!(families, documented.iter().map(String::as_str).collect(), "the scrape, and docs/metrics.md");
    let doctor = json_of(&plant.ask("GET", "/api/v1/doctor").1);
    let checks = doctor["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["name"] == "cluster drift").expect("the check");
    let detail = "b differs from a in limits.queue_messages";
    assert_eq!((found["result"].as_str(), found["detail"].as_str()), (Some("warn"), Some(detail)));
    let login = format!("{LOCAL}Content-Type: application/x-www-form-urlencoded\r\n");
    let (_, answer) =
        request_with_body(plant.admin, "POST", "/login", &login, &format!("token={}", plant.token));
    let cookie = cookie_of(&answer);
    let (status, page) = plant.page("/cluster", &cookie);
    assert!(status == 200 && page.contains("limits.queue_messages") && page.contains(detail), "{page}");
    assert!(page.contains(r#"href="/cluster""#) && !page.contains(r#"href="/clients""#), "{page}");
    for path in ["/", "/clients", "/traces", "/where"] {
        let (status, page) = plant.page(path, &cookie);
        assert!(status == 503 && page.contains("This node stands by"), "{path}: {page}");
        assert!(page.contains(&format!(r#"<a id="owner" href="{PAGES_OF_A}/">"#)), "{path}: {page}");
    }
    let (status, page) = plant.page("/settings?key=limits.queue_messages", &cookie);
    assert!(status == 200 && page.contains("Standing by"), "{page}");
    fs::write(&plant.file, "[limits]\nsessions = 0\n").expect("a file");
    let (status, answer) = plant.ask("POST", "/api/v1/config/reload");
    assert!(status == 422 && answer.contains("limits.sessions"), "{answer}");
    fs::write(&plant.file, "").expect("a file");
    let (status, answer) = plant.ask("POST", "/api/v1/config/reload");
    assert!(status == 200 && answer.contains("limits.queue_messages"), "{answer}");
    assert_eq!(plant.config.config(), Config::default());
    until("b does not differ any more", || drift().filter(|keys| *keys == serde_json::json!([])));
    plant.end();
}
