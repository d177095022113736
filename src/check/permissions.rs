//! Owners and modes of the database, its folder and its side files. By their metadata alone: opening a file of the database
//! and closing it again would drop SQLite's locks.

use super::{Finding, shell};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks at them. `shared`: two Unix users write the database, the worker's and the web server's.
pub fn look(database: &Path, shared: bool) -> Vec<Finding> {
    let folder = match database.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let Ok(at) = fs::metadata(&folder) else {
        let mend = format!("install -d -m 2770 -o feedmill -g feedmill {}", shell(&folder));
        return vec![Finding::wrong(format!("there is no folder {}", folder.display()), mend)];
    };
    let Ok(file) = fs::metadata(database) else { return Vec::new() };
    let mut findings = Vec::new();
    let (owner, group) = (name_of("/etc/passwd", at.uid()), name_of("/etc/group", at.gid()));
    if shared && at.gid() == 0 {
        // Nothing but root's own group: the web server must never be in that.
        let mend = format!("install -d -m 2770 -o feedmill -g feedmill {}", shell(&folder));
        findings.push(Finding::wrong(format!("the folder {} belongs to root's group", folder.display()), mend));
    } else if shared && at.mode() & 0o2770 != 0o2770 {
        let what = format!(
            "the folder {} has mode {:o}: worker and web server both make files in it, which must get its group",
            folder.display(),
            at.mode() & 0o7777
        );
        findings.push(Finding::wrong(what, format!("chmod 2770 {}", shell(&folder))));
    }
    for suffix in ["", "-wal", "-shm"] {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        let path = PathBuf::from(path);
        let Ok(one) = fs::metadata(&path) else { continue };
        findings.extend(one_file(&path, &one, &file, &at, &owner, &group, shared, suffix.is_empty()));
    }
    if findings.is_empty() {
        let how = if shared { format!("shared by the group {group}") } else { format!("the user {owner} alone") };
        findings.push(Finding::Well(format!("permissions: {how} can write the database and its folder")));
    }
    findings
}

#[allow(clippy::too_many_arguments)] // Facts of three files that are compared in one place.
fn one_file(
    path: &Path,
    one: &Metadata,
    file: &Metadata,
    folder: &Metadata,
    owner: &str,
    group: &str,
    shared: bool,
    main: bool,
) -> Option<Finding> {
    let name = path.display();
    // The folder's owner runs the worker: it must be able to write whatever stands there.
    let by_owner = one.uid() == folder.uid() && one.mode() & 0o600 == 0o600;
    let by_group = one.gid() == folder.gid() && one.mode() & 0o060 == 0o060;
    if shared {
        if one.gid() != folder.gid() {
            let what =
                format!("{name} belongs to the group {}, its folder to {group}", name_of("/etc/group", one.gid()));
            return Some(Finding::wrong(what, format!("chgrp {group} {}", shell(path))));
        }
        if one.mode() & 0o777 != 0o660 {
            let why =
                if main { "both users must write it, and nobody else may read its secrets" } else { "it is shared" };
            let what = format!("{name} has mode {:o}: {why}", one.mode() & 0o777);
            return Some(Finding::wrong(what, format!("chmod 0660 {}", shell(path))));
        }
        if main && one.uid() != folder.uid() {
            let what = format!("{name} belongs to {}, its folder to {owner}", name_of("/etc/passwd", one.uid()));
            return Some(Finding::wrong(what, format!("chown {owner}:{group} {}", shell(path))));
        }
        return None;
    }
    if !by_owner && !by_group && (main || one.uid() != file.uid()) {
        let what = format!(
            "{name} (owner {}, mode {:o}) cannot be written by {owner}, the owner of its folder",
            name_of("/etc/passwd", one.uid()),
            one.mode() & 0o777
        );
        return Some(Finding::wrong(what, format!("chown {owner}:{group} {0} && chmod u+rw {0}", shell(path))));
    }
    None
}

/// The name that goes with a number in /etc/passwd or /etc/group; the number where it has none there.
pub(super) fn name_of(table: &str, id: u32) -> String {
    let text = fs::read_to_string(table).unwrap_or_default();
    let id = id.to_string();
    let name = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_string())
    });
    name.unwrap_or(id)
}
