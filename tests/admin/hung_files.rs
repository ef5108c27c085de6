//! Files that hang while the broker reads them: a FIFO that nobody writes to, as a file on a dead
//! network file system.

use crate::api::token;
use crate::http::{LOCAL, request};
use crate::kit::Pki;
use crate::reload::Configured;
use crate::support::passwords::password_file;
use crate::support::{Connect, RawClient, Version, until};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

/// A file with a FIFO in its place.
struct Hung {
    file: PathBuf,
    content: Vec<u8>,
}

impl Hung {
    fn replace(file: &Path) -> Hung {
        let content = fs::read(file).expect("a file");
        fs::remove_file(file).expect("a file");
        mknodat(CWD, file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        Hung { file: file.to_owned(), content }
    }

    /// Waits until the broker reads the file. Returns the other end, which says nothing.
    fn writer(&self) -> fs::File {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = || open(&self.file, flags, Mode::empty()).ok();
        until(&format!("a read of {}", self.file.display()), opened).into()
    }

    /// Puts the file back, and answers the read that hangs with its content.
    fn answer(self, mut writer: fs::File) {
        let aside = self.file.with_extension("aside");
        fs::write(&aside, &self.content).expect("a file");
        fs::rename(&aside, &self.file).expect("a file");
        writer.write_all(&self.content).expect("the broker reads");
    }
}

/// A broker with files of all kinds.
struct ManyFiles {
    broker: Configured,
    pki: Pki,
    token: String,
}

impl ManyFiles {
    fn start() -> ManyFiles {
        let pki = Pki::new();
        pki.server("server", &["localhost"]);
        pki.revoke("crl.pem", &[]);
        pki.write("passwords", &password_file(&[("ann", "sesame")]));
        pki.write("own-passwords", &password_file(&[("bob", "sesame")]));
        pki.write("acl", "topic readwrite #\n");
        pki.write("own-acl", "topic read #\n");
        pki.write("bans", "client evil-*\n");
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        pki.write("keys", &format!(r#"{{"keys":[{{"kty":"oct","alg":"HS256","k":"{key}"}}]}}"#));
        let token = token(&pki.path("credentials"), "admin");
        let path = |name: &str| format!("{:?}", pki.text_path(name));
        let text = format!(
            "[auth]\nanonymous = \"loopback\"\npassword_file = {}\njwt_keys = {}\n[acl]\nfile = {}\n[bans]\nfile = {}\n\
             [admin]\ncredentials = {}\n\
             [[listeners]]\naddress = \"127.0.0.1:0\"\npassword_file = {}\nacl_file = {}\n\
             [[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.tls]\ncertificates = [{{ certificate = {}, key = {} }}]\n\
             client_ca = {}\nclient_certificates = \"optional\"\ncrl = [{}]\n",
            path("passwords"),
            path("keys"),
            path("acl"),
            path("bans"),
            path("credentials"),
            path("own-passwords"),
            path("own-acl"),
            path("server.pem"),
            path("server.key"),
            path("ca.pem"),
            path("crl.pem"),
        );
        ManyFiles { broker: Configured::start(&text), pki, token }
    }

    /// Returns the files that a reload reads.
    fn of_reload(&self) -> Vec<PathBuf> {
        let names = [
            "passwords",
            "own-passwords",
            "keys",
            "acl",
            "own-acl",
            "bans",
            "server.pem",
            "server.key",
            "ca.pem",
            "crl.pem",
        ];
        let files = names.iter().map(|name| self.pki.path(name));
        [self.configuration()].into_iter().chain(files).collect()
    }

    fn configuration(&self) -> PathBuf {
        self.broker.directory.path().join("homing.toml")
    }

    /// A client connects, another one logs in, and the HTTP interface answers.
    fn serves(&self) {
        RawClient::connect(self.broker.mqtt, &Connect::new(Version::V5, "anybody"));
        let login = Connect::new(Version::V311, "ann").user_name("ann").password(b"sesame");
        RawClient::connect(self.broker.mqtt, &login);
        for path in ["/healthz", "/readyz"] {
            assert_eq!(request(self.broker.admin, "GET", path, LOCAL).0, 200, "{path}");
        }
    }
}

#[test]
fn clients_connect_and_the_interface_answers_while_any_file_hangs_and_sigterm_ends_the_broker() {
    let mut many = ManyFiles::start();
    for file in many.of_reload() {
        let hung = Hung::replace(&file);
        many.broker.broker.signal(Signal::HUP);
        let writer = hung.writer();
        many.serves();
        hung.answer(writer);
        many.broker.broker.line("configuration and files were read again").expect("a reload");
    }
    let hung = Hung::replace(&many.pki.path("credentials"));
    let headers = format!("{LOCAL}Authorization: Bearer {}\r\n", many.token);
    thread::scope(|scope| {
        let asked = scope.spawn(|| request(many.broker.admin, "GET", "/api/v1/me", &headers));
        let writer = hung.writer();
        many.serves();
        assert_eq!(asked.join().expect("an answer").0, 200, "the credentials are as they were");
        assert_eq!(request(many.broker.admin, "GET", "/api/v1/me", &headers).0, 200, "at once");
        hung.answer(writer);
    });
    let file = many.configuration();
    let hung = Hung::replace(&file);
    // Two limits of time: one for the file, and one for the broker to say so.
    let (code, text) = many.broker.ctl(&["reload"]);
    assert!(code == Some(2) && text.contains(&format!("{} was not read within", file.display())), "{text}");
    let (code, text) = many.broker.ctl(&["reload"]);
    assert!(code == Some(2) && text.contains("an earlier read of"), "{text}");
    many.serves();
    many.broker.broker.signal(Signal::TERM);
    assert_eq!(many.broker.broker.end().0, Some(0));
    drop(hung);
}
