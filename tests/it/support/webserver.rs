//! Real web servers on loopback, configured from the snippets of `contrib/webserver/`, as root that drops to www-data, with
//! the real callback program on a database that belongs to another user.

use super::binary::wait_until;
use super::client::{self, Response};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The user of the worker; www-data is in its group, by the recipe of the README.
pub const OWNER: &str = "feedmill";
const PROGRAMS: [&str; 10] =
    ["nginx", "fcgiwrap", "spawn-fcgi", "apache2", "lighttpd", "caddy", "busybox", "sqlite3", "setpriv", "runuser"];
const INSTALL: &str = "apt-get install -y nginx-light fcgiwrap spawn-fcgi apache2 lighttpd caddy busybox sqlite3";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Apache,
    Lighttpd,
    Caddy,
    Busybox,
}

/// A database with its owner and folder, and the programs where www-data can run them.
pub struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// Runs the recipe of the README as it stands there.
    pub fn new() -> Site {
        require();
        let folder = tempfile::Builder::new().prefix("feedmill-site").tempdir().expect("a folder");
        set_mode(folder.path(), 0o755);
        let site = Site { folder };
        for (from, name) in [
            (env!("CARGO_BIN_EXE_feedmill-callback"), "feedmill-callback"),
            (env!("CARGO_BIN_EXE_feedmill"), "feedmill"),
        ] {
            let to = site.path(name);
            // A link costs nothing, but needs the same file system and a folder that others may enter.
            fs::copy(from, &to).expect("the program is copied");
            set_mode(&to, 0o755);
        }
        for folder in ["www", "www/cgi-bin", "tmp"] {
            fs::create_dir(site.path(folder)).expect("a folder");
        }
        // As in a site that was there before: something else is served beside.
        fs::write(site.path("www/index.html"), "the site").expect("a page");
        let status = Command::new("chown").arg("www-data").arg(site.path("tmp")).status();
        assert!(status.expect("chown").success());
        let readme = read_contrib("README.md");
        let recipe = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the recipe");
        let output = Command::new("sh").args(["-e", "-c", &site.placed(recipe)]).output().expect("sh");
        assert!(output.status.success(), "the recipe: {output:?}");
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn db(&self) -> PathBuf {
        self.path("db/feedmill.db")
    }

    /// The snippet with the test's places in it. Each place must be named in it: else it is not the snippet that is tested.
    fn snippet(&self, name: &str) -> String {
        let text = read_contrib(name);
        for needed in ["/usr/local/bin", "/var/lib/feedmill/feedmill.db"] {
            assert!(text.contains(needed), "{name} does not name {needed}");
        }
        self.placed(&text)
    }

    fn placed(&self, text: &str) -> String {
        let at = |name: &str| self.path(name).to_string_lossy().into_owned();
        text.replace("/usr/local/bin", self.folder.path().to_str().expect("a plain path"))
            .replace("/var/lib/feedmill", &at("db"))
            .replace("/run/fcgiwrap.socket", &at("fcgiwrap.socket"))
    }

    /// Runs SQL as a Unix user of its own, with the groups it has by /etc/group; the rows it answers.
    pub fn sql(&self, user: &str, sql: &str) -> String {
        let db = self.db();
        let db = db.to_str().expect("a plain path");
        let output = as_user(user, &["sqlite3", "-batch", "-bail", "-cmd", ".timeout 10000", db, sql]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty(), "{sql} as {user}: {error}");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// Runs the real `feedmill` as the owner.
    pub fn feedmill(&self, args: &[&str]) -> Output {
        let program = self.path("feedmill");
        let (program, db) = (program.to_string_lossy(), self.db());
        as_user(OWNER, &[&[&program, "--db", db.to_str().expect("a plain path")], args].concat())
    }

    /// Starts the server with its snippet, and waits until it answers.
    pub fn serve(&self, kind: Kind) -> Server {
        self.serve_edited(kind, &|text| text)
    }

    /// The same with the whole configuration edited before: as somebody gets it wrong.
    pub fn serve_edited(&self, kind: Kind, edit: &dyn Fn(String) -> String) -> Server {
        let port = free_port();
        let mut children = Vec::new();
        let www = self.path("www").to_string_lossy().into_owned();
        let tmp = self.path("tmp").to_string_lossy().into_owned();
        let conf = self.path("server.conf");
        let conf_name = conf.to_string_lossy().into_owned();
        let write = |text: String| fs::write(&conf, edit(text)).expect("the configuration");
        match kind {
            Kind::Nginx => {
                children.push(self.fcgiwrap());
                write(format!(
                    "user www-data; daemon off; worker_processes 1; pid {tmp}/nginx.pid; error_log {tmp}/{kind:?}.log;
                     events {{ }}
                     http {{ access_log off; client_body_temp_path {tmp}/body; fastcgi_temp_path {tmp}/fastcgi;
                       proxy_temp_path {tmp}/proxy; uwsgi_temp_path {tmp}/uwsgi; scgi_temp_path {tmp}/scgi;
                       server {{ listen 127.0.0.1:{port}; root {www};
                         location ~ \\.php$ {{ return 418; }}
                         {} }} }}",
                    self.snippet("nginx.conf")
                ));
                children.push(self.start("nginx", &["-c", &conf_name]));
            }
            Kind::Apache => {
                let modules: String = ["mpm_event", "authz_core", "alias", "env", "dir", "reqtimeout", "cgid"]
                    .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
                    .concat();
                write(format!(
                    "{modules}User www-data\nGroup www-data\nServerName localhost\nListen 127.0.0.1:{port}\n\
                     PidFile {tmp}/apache.pid\nErrorLog {tmp}/{kind:?}.log\nScriptSock {tmp}/cgid.sock\n\
                     <Directory />\nRequire all denied\n</Directory>\n\
                     <Directory {www}>\nRequire all granted\n</Directory>\n\
                     <VirtualHost *:{port}>\nDocumentRoot {www}\n{}\n</VirtualHost>\n",
                    self.snippet("apache.conf")
                ));
                children.push(self.start("apache2", &["-D", "FOREGROUND", "-f", &conf_name]));
            }
            Kind::Lighttpd => {
                // The modules and folders as Debian's own lighttpd.conf has them.
                write(format!(
                    "server.modules = (\"mod_indexfile\", \"mod_access\", \"mod_alias\", \"mod_redirect\")\n\
                     server.document-root = \"{www}\"\nserver.username = \"www-data\"\nserver.groupname = \"www-data\"\n\
                     server.bind = \"127.0.0.1\"\nserver.port = {port}\nserver.errorlog = \"{tmp}/{kind:?}.log\"\n\
                     server.upload-dirs = (\"{tmp}\")\n{}",
                    self.snippet("lighttpd.conf")
                ));
                children.push(self.start("lighttpd", &["-D", "-f", &conf_name]));
            }
            Kind::Caddy => {
                children.push(self.fcgiwrap());
                write(format!(
                    "{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {tmp}/caddy\n}}\n\
                     http://127.0.0.1:{port} {{\n\tbind 127.0.0.1\n\troot * {www}\n\tfile_server\n{}}}\n",
                    self.snippet("Caddyfile")
                ));
                // Debian's unit starts it as a user of its own from the beginning.
                let run = ["--reuid", "www-data", "--regid", "www-data", "--init-groups", "caddy", "run"];
                children.push(
                    self.start("setpriv", &[&run[..], &["--adapter", "caddyfile", "--config", &conf_name]].concat()),
                );
            }
            Kind::Busybox => {
                let script = self.path("www/cgi-bin/feedmill");
                fs::write(&script, self.snippet("busybox-feedmill")).expect("the script");
                set_mode(&script, 0o755);
                let user = format!("www-data:{OWNER}");
                let at = format!("127.0.0.1:{port}");
                children.push(self.start("busybox", &["httpd", "-f", "-p", &at, "-u", &user, "-h", &www]));
            }
        }
        let server = Server {
            addr: SocketAddr::from(([127, 0, 0, 1], port)),
            prefix: if kind == Kind::Busybox { "/cgi-bin/feedmill" } else { "/feedmill" },
            log: self.path("tmp/server.log"),
            kind,
            children,
        };
        let answers = || TcpStream::connect(server.addr).is_ok();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !answers() {
            assert!(Instant::now() < deadline, "{kind:?} does not start: {}", server.log());
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(server.get("/index.html").body, b"the site", "{}", server.log());
        server
    }

    /// As Debian's socket unit starts it: as www-data, with the groups of /etc/group.
    fn fcgiwrap(&self) -> Child {
        let socket = self.path("fcgiwrap.socket");
        let _ = fs::remove_file(&socket);
        let name = socket.to_string_lossy().into_owned();
        let dropped = ["-u", "www-data", "-g", "www-data", "-U", "www-data", "-M", "0660", "-b", "1024"];
        let child = self.start(
            "spawn-fcgi",
            &[&["-n", "-s", &name], &dropped[..], &["--", "/usr/sbin/fcgiwrap", "-c", "4"]].concat(),
        );
        wait_until("fcgiwrap listens", || socket.exists());
        child
    }

    fn start(&self, program: &str, args: &[&str]) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.path("tmp/server.log")).expect("a log");
        let mut command = Command::new(program);
        // What a distribution's unit gives it, and nothing of the test's.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(args).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        // Its children too are to be ended: those of fcgiwrap outlive it.
        command.process_group(0);
        command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"))
    }
}

/// A web server that runs, with what it needs. Dropping it ends it.
pub struct Server {
    pub addr: SocketAddr,
    /// The path of `callback_url`.
    pub prefix: &'static str,
    log: PathBuf,
    kind: Kind,
    children: Vec<Child>,
}

impl Server {
    pub fn callback_url(&self) -> String {
        format!("http://{}{}", self.addr, self.prefix)
    }

    /// What server and callback said.
    pub fn log(&self) -> String {
        let said = |name: &Path| fs::read_to_string(name).unwrap_or_default();
        said(&self.log) + &said(&self.log.with_file_name(format!("{:?}.log", self.kind)))
    }

    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        client::send(method, &format!("http://{}{path}", self.addr), None, headers, body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// A request byte by byte. `None`: no answer. `close`: our side is closed right after.
    pub fn raw(&self, bytes: &[u8], close: bool) -> Option<Response> {
        let mut stream = TcpStream::connect(self.addr).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        // A server may refuse before it has read all.
        let _ = stream.write_all(bytes);
        if close {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        client::parse(&answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // Not waited for yet, so the number is still this group's.
            let group = format!("-{}", child.id());
            let signal = |name: &str| Command::new("kill").args([name, "--", &group]).stderr(Stdio::null()).status();
            let _ = signal("-TERM");
            // The parent may be gone before its children: what is left of the group is asked for by signal 0.
            for _ in 0..100 {
                let _ = child.try_wait();
                if !signal("-0").is_ok_and(|status| status.success()) {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            let _ = signal("-KILL");
            let _ = child.wait();
        }
    }
}

/// Root, and every program: what is missing fails the test with the line that installs it.
fn require() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let id = Command::new("id").arg("-u").output().expect("the `id` program").stdout;
        assert_eq!(id, b"0\n", "these tests start web servers that drop to www-data: run them as root");
        for program in PROGRAMS {
            let found =
                ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|at| Path::new(at).join(program).exists());
            assert!(found, "{program} is missing; {INSTALL}");
        }
    });
}

/// Runs a program as a user with the groups it has by /etc/group.
pub fn as_user(user: &str, command: &[&str]) -> Output {
    let run = ["--reuid", user, "--regid", user, "--init-groups"];
    Command::new("setpriv").args(run).args(command).stdin(Stdio::null()).output().expect("setpriv")
}

fn read_contrib(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/webserver").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}
