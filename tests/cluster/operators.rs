//! What operators see of two nodes on real servers: a standby that names the owner, files that
//! differ, and a node that has left.

use crate::servers::{PASSWORD, Servers, own_address};
use crate::support::now;
use crate::support::process::Process;
use crate::support::shim::shim;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Bound of each wait. What is waited for takes 10 s at most on an idle machine.
const SOON: Duration = Duration::from_secs(60);

struct Nodes {
    directory: PathBuf,
}

impl Nodes {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns a command with the configuration of a node.
    fn command(&self, node: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(arguments).arg("--config").arg(self.file(&format!("{node}.toml")));
        command
    }

    /// Runs a command with the configuration of a node. Returns its exit code and what it prints.
    fn run(&self, node: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(node, arguments).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// Waits until a command prints something.
    fn wait_for(
        &self,
        node: &str,
        arguments: &[&str],
        is_right: impl Fn(&str) -> bool,
    ) -> (Option<i32>, String) {
        let begun = now();
        loop {
            let (code, said) = self.run(node, arguments);
            if is_right(&said) {
                return (code, said);
            }
            assert!(begun.elapsed() < SOON, "{arguments:?} at {node}: {said}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn configure(&self, node: &str, servers: &[String], password: &Path) {
        let (address, data) = (SocketAddr::from((own_address(), 1883)), self.file(&format!("{node}-data")));
        let (host, users) = (address.ip(), self.file(&format!("{node}-users")));
        fs::write(&users, "").expect("a file");
        let text = format!(
            "[network]\nlisten = [\"{address}\"]\n[auth]\npassword_file = {users:?}\n[admin]\naddresses = [\"{host}:11883\"]\n\
             [runtime]\nthreads = 1\n[store]\npath = {data:?}\n\
             [cluster]\nname = \"operators\"\nnode = \"{node}\"\nnodes = [\"a\", \"b\"]\nnats = [{}]\n\
             nats_user = \"homing\"\nnats_password_file = {password:?}\nlog_size = \"64 MiB\"\n",
            servers.join(", ")
        );
        fs::write(self.file(&format!("{node}.toml")), text).expect("a file");
    }

    fn start(&self, node: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("serve").arg("--config").arg(self.file(&format!("{node}.toml")));
        Process::spawn(&mut command)
    }
}

/// Plays the whole story on servers that another test has started.
pub fn see_a_cluster(servers: &Servers) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let nodes = Nodes { directory: directory.path().to_owned() };
    let password = nodes.file("password");
    fs::write(&password, PASSWORD).expect("a file");
    let doors = servers.doors();
    let urls: Vec<String> = doors.iter().map(|door| format!("\"nats://{}\"", door.address)).collect();
    ["a", "b"].iter().for_each(|node| nodes.configure(node, &urls, &password));
    let (code, said) = nodes.run("a", &["cluster", "init"]);
    assert_eq!(code, Some(0), "{said}");
    let mut a = nodes.start("a");
    nodes.wait_for("a", &["cluster", "status"], |said| said.contains("a serves"));
    let _b = nodes.start("b");
    let status = ["cluster", "status"];
    let (code, said) = nodes
        .wait_for("b", &status, |said| said.contains("a serves") && said.contains("b         following"));
    assert_eq!(code, Some(0), "{said}");
    let secrets =
        ["a-data", "b-data"].map(|data| fs::read(nodes.file(data).join("scram.secret")).expect("a secret"));
    assert_eq!(secrets[0], secrets[1]);
    // The clock of the machine where the command runs does not matter.
    for ahead in ["-604800", "604800"] {
        let mut command = nodes.command("b", &status);
        command.env("LD_PRELOAD", shim("cluster")).env("CLUSTER_CLOCK", ahead);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("a serves") && !said.contains("silent"), "{said}");
    }
    // The standby answers what it can, and names the owner for all else.
    let (code, said) = nodes.wait_for("b", &["ctl", "status"], |said| said.contains("this node stands by"));
    assert!(code == Some(0) && said.contains("a serves") && said.contains(":11883"), "{said}");
    let (code, said) = nodes.run("b", &["ctl", "clients"]);
    assert!(code == Some(1) && said.contains("ask the node a"), "{said}");
    assert_eq!(nodes.run("a", &["ctl", "clients"]).0, Some(0));
    // The log of a node is not in its data directory, and is not missed there.
    for node in ["a", "b"] {
        let (_, said) = nodes.run(node, &["doctor"]);
        assert!(said.contains("cluster nodes") && said.contains("this version reads the store in"), "{said}");
        let (code, said) = nodes.run(node, &["store", "check"]);
        assert!(code == Some(0) && said.contains("is sound"), "{said}");
    }
    // Another password file is named, on any node, and is no reason to refuse anything.
    fs::write(nodes.file("b-users"), "# another one\n").expect("a file");
    let drift = "DRIFT    b differs from a in the content of auth.password_file";
    let (code, said) = nodes.wait_for("a", &status, |said| said.contains(drift));
    assert_eq!(code, Some(1), "{said}");
    nodes.wait_for("a", &["doctor"], |said| said.contains("differs from a in the content"));
    fs::write(nodes.file("b-users"), "").expect("a file");
    nodes.wait_for("b", &status, |said| !said.contains("DRIFT"));
    // The row of a node that was drained does not say that it serves.
    let (code, said) = nodes.run("b", &["cluster", "drain", "a"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(a.end().0, Some(0));
    let (_, said) = nodes.run("b", &status);
    assert!(said.contains("a         left"), "{said}");
    // Its next start must find no request.
    let (code, said) = nodes.run("b", &["cluster", "drain", "a", "--force"]);
    assert!(code == Some(1) && said.contains("a has left already, so nothing is done"), "{said}");
    nodes.wait_for("b", &status, |said| said.contains("b serves") && said.contains("a         left"));
}
