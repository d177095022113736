//! `serve-fixtures FOLDER`: a web server on loopback for contrib/quickstart. It serves fixtures/feeds as a small internet
//! where feeds have moved, and prints its port; it ends when its standard input ends.
//!
//! Needs nothing but `rustc`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Names two feeds; the first is the better one.
const PAGE: &str = r#"<!doctype html><html><head><title>Notes</title>
<link rel="alternate" type="application/atom+xml" title="Notes" href="/notes.atom">
<link rel="alternate" type="application/feed+json" title="Notes, as JSON" href="/notes.json">
</head><body><p>A page that names its feeds.</p></body></html>
"#;

enum Answer {
    Redirect(u16, &'static str),
    Page,
    File(&'static str, &'static str),
    NotFound,
}

fn answer(path: &str) -> Answer {
    match path {
        "/old.xml" => Answer::Redirect(301, "/older.xml"),
        "/older.xml" => Answer::Redirect(301, "/news.xml"),
        "/today.xml" => Answer::Redirect(302, "/podcast.xml"),
        "/news.xml" => Answer::File("rss20.xml", "application/rss+xml"),
        "/podcast.xml" => Answer::File("podcast.xml", "application/rss+xml"),
        "/blog/" => Answer::Page,
        "/notes.atom" => Answer::File("atom.xml", "application/atom+xml"),
        "/notes.json" => Answer::File("jsonfeed.json", "application/feed+json"),
        "/burnt" | "/burnt-mirror" => Answer::File("feedburner.xml", "text/xml"),
        _ => Answer::NotFound,
    }
}

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: serve-fixtures FOLDER");
        std::process::exit(2);
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        // A client that leaves early is its own affair.
        let _ = stream.and_then(|stream| serve(stream, Path::new(&folder)));
    }
    Ok(())
}

fn serve(mut stream: TcpStream, folder: &Path) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut lines = BufReader::new(stream.try_clone()?.take(16384)).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let (status, header, body) = match answer(request.split(' ').nth(1).unwrap_or_default()) {
        Answer::Redirect(status, to) => (status, format!("Location: {to}"), Vec::new()),
        Answer::Page => (200, "Content-Type: text/html".to_string(), PAGE.as_bytes().to_vec()),
        Answer::File(name, kind) => (200, format!("Content-Type: {kind}"), std::fs::read(folder.join(name))?),
        Answer::NotFound => (404, "Content-Type: text/plain".to_string(), b"not found\n".to_vec()),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} x\r\n{header}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)
}
