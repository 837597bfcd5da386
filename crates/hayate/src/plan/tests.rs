//! What a configuration becomes, and what is refused with which words.

use std::fs;

use super::*;
use hayate_pool::{Rewind, Visit};

use crate::{
    args::KeyValue,
    config::{ModeChoice, RewindChoice, Workers},
};

/// A directory with `hayate.toml`, `site/public/index.php` and a stand-in for the host binary, which is only looked for here.
pub(crate) fn fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("site/public")).unwrap();
    fs::write(dir.path().join("site/public/index.php"), "").unwrap();
    fs::write(dir.path().join("site/worker.php"), "").unwrap();
    dir
}

/// Configurations as the documentation shows them, for a directory that is there; and each key with the section that it stands in.
fn documented() -> (Vec<String>, Vec<(String, String)>) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut files: Vec<_> = fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut blocks = Vec::new();
    for text in files.iter().map(|file| fs::read_to_string(file).unwrap()) {
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            let mut lines: Vec<&str> = block
                .lines()
                .map(|line| if line.trim_start().starts_with("root =") { "root = 'site'" } else { line })
                .collect();
            if !block.contains("[[app]]") {
                lines.extend(["[[app]]", "root = 'site'"]);
            }
            blocks.push(lines.join("\n") + "\n");
        }
    }
    let reference = fs::read_to_string(docs.join("configuration.md")).unwrap();
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in reference.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = match heading {
                "Top of the file" => String::new(),
                "[[app.rule]]" => "[[app]]\nroot = 'site'\n[[app.rule]]\n".into(),
                "[[app]]" => "[[app]]\nroot = 'site'\n".into(),
                name if name.starts_with('[') => format!("{name}\n"),
                table => format!("[[app]]\nroot = 'site'\n[[app.rule]]\npath = '/a'\n[app.rule.{table}]\n"),
            };
        } else if let Some(key) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            keys.push((section.clone(), key.to_owned()));
        }
    }
    (blocks, keys)
}

#[test]
fn fuzz_configurations() {
    let dir = fixture();
    let (blocks, keys) = documented();
    assert!(blocks.len() > 20 && keys.len() > 120, "{} blocks, {} keys", blocks.len(), keys.len());
    let seeds: Vec<&[u8]> = blocks.iter().map(String::as_bytes).collect();
    let values: Vec<&str> = "0|1|-1|8|65535|99999999999999999999|1.5|nan|true|'off'|'on'|''|'1s'|'9999d'|'1K'|'16E'|'2-8'|'/'|'site'|\
        '../..'|'*.a.test'|'a.test'|':1'|'127.0.0.1:80'|'unix:/x'|'[::1]:0'|'10.0.0.0/8'|\"\\u0000\"|'\u{1f418}'|[]|['a', 'b']|\
        ['/', '/x']|{}|{ a = 'b' }|{ address = ':1', tls = true }|[[]]|1979-05-27"
        .split('|')
        .collect();
    let pieces: [&[u8]; 15] = [
        b"=",
        b"'",
        b"\"",
        b"[",
        b"]",
        b"[[app]]\n",
        b"{",
        b"}",
        b"\n",
        b",",
        b"..",
        b"\0",
        b"\xff",
        b"-1",
        b"99999999999999999999",
    ];
    let mut served = 0u64;
    hayate_fuzz::run("configurations", &seeds, &pieces, |random, input| {
        // Half of them are a key with a value that is most often not its own, and another key that may be out of place.
        let text = if random.below(2) == 0 {
            let (section, key) = &keys[random.below(keys.len())];
            let value = random.pick(&values);
            let (_, other) = &keys[random.below(keys.len())];
            let more = if random.below(2) == 0 {
                format!("{other} = {}\n", random.pick(&values))
            } else {
                String::new()
            };
            let app = if section.contains("[[app]]") { "" } else { "[[app]]\nroot = 'site'\n" };
            format!("{section}{key} = {value}\n{more}{app}")
        } else {
            let Ok(text) = std::str::from_utf8(input) else { return };
            text.to_owned()
        };
        match plan(dir.path(), &text, |_| {}) {
            Ok(plan) => {
                served += 1;
                // What is handed on can be read: the front gets it so.
                let told = serde_json::to_vec(&plan.without_secrets()).unwrap();
                serde_json::from_slice::<Plan>(&told).unwrap();
            }
            Err(why) => assert!(why.len() > 10, "{why}"),
        }
    });
    assert!(served > 0, "all were refused");
}

pub(crate) fn plan(dir: &Path, text: &str, change: impl FnOnce(&mut ServeArgs)) -> Result<Plan, String> {
    plan_as(dir, text, Strictness::All, change)
}

pub(crate) fn plan_as(
    dir: &Path,
    text: &str,
    strictness: Strictness,
    change: impl FnOnce(&mut ServeArgs),
) -> Result<Plan, String> {
    let mut args = ServeArgs { php: Some("/bin/true".into()), ..ServeArgs::default() };
    change(&mut args);
    let path = dir.join("hayate.toml");
    let (source, file) = Source::parse(&path, text.into()).map_err(|e| e.to_string())?;
    Plan::from(&source, file, &args, strictness, &mut |_| {})
        .map_err(|e| e.to_string().replace(&*path.to_string_lossy(), "hayate.toml"))
}

/// One that says nothing but where an application is.
pub(crate) fn any() -> Plan {
    plan(fixture().path(), "[[app]]\nroot = 'site'\n", |_| {}).unwrap()
}

#[test]
fn defaults() {
    let dir = fixture();
    let plan = plan(dir.path(), "[[app]]\nroot = 'site'\n", |_| {}).unwrap();
    let app = &plan.apps[0];
    let site = dir.path().canonicalize().unwrap().join("site");
    assert_eq!(app.spec.document_root, site.join("public"));
    assert_eq!(app.spec.cwd, site);
    assert_eq!(app.spec.name, "site");
    assert_eq!(app.front_controller.script.as_deref(), Some("index.php"));
    assert!(app.front_controller.why.starts_with("the document root is called public; "));
    assert_eq!(app.spec.mode, Mode::Classic);
    assert_eq!(app.spec.request_timeout, Some(Duration::from_secs(60)));
    assert_eq!(plan.listen, ["127.0.0.1:8080".parse().unwrap()]);
}

#[test]
fn sockets_and_files_have_names_that_the_kernel_takes() {
    let dir = fixture();
    let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
    let of = |length: usize| format!("/{}", "s".repeat(length - 1));
    for (key, fine, long, most) in [
        ("listen", of(107), of(108), 107),
        ("control", of(107), of(108), 107),
        ("pid_file", of(256), of(257), 255),
        ("access_log", of(256), of(257), 255),
    ] {
        let text = |path: &str| format!("{key} = '{path}'\n[[app]]\nroot = 'site'\n");
        plan(dir.path(), &text(&fine), |_| {}).unwrap();
        let (got, found) = (error(&text(&long)), most + 1);
        assert!(got.starts_with(&format!("hayate.toml:1: {key}: {long}: expected a ")), "{got}");
        assert!(got.contains(&format!(" of {most} bytes at most")), "{got}");
        assert!(got.ends_with(&format!("found {found}; choose a shorter one")), "{got}");
    }
    let got = plan(dir.path(), "", |args| args.pid_file = Some(of(257).into())).unwrap_err();
    assert!(got.starts_with("--pid-file: /sss"), "{got}");
    let got = plan(dir.path(), "", |args| args.listen = vec![of(108).parse().unwrap()]).unwrap_err();
    assert!(got.starts_with("--listen: /sss"), "{got}");
    // In either form it is no file that somebody else has made.
    fs::write(dir.path().join("file"), "").unwrap();
    for address in ["unix:file", "unix:./file", "./file", &dir.path().join("file").to_string_lossy()] {
        let got = error(&format!("listen = '{address}'\n"));
        assert!(
            got.starts_with("hayate.toml:1: listen: unix:/") && got.contains("found a file that is none"),
            "{got}"
        );
    }
    // Paths of the file start from its directory, those of flags from the current one.
    let text = "listen = ['./a.sock', 'unix:b.sock']\n[[app]]\nroot = 'site'\n";
    let own = |name: &str| ListenAddr::Unix(dir.path().join(name));
    assert_eq!(plan(dir.path(), text, |_| {}).unwrap().listen, [own("a.sock"), own("b.sock")]);
    let by_flag = plan(dir.path(), text, |args| args.listen = vec!["./c.sock".parse().unwrap()]);
    assert_eq!(by_flag.unwrap().listen, [ListenAddr::Unix(std::path::absolute("c.sock").unwrap())]);
}

#[test]
fn only_what_php_ini_holds_several_times_may_be_an_array() {
    let dir = fixture();
    let text = "[[app]]\nroot = 'site'\n[app.ini]\nextension = ['x']\nmemory_limit = ['1M', '2M']\n";
    let said = plan(dir.path(), text, |_| ()).unwrap_err().to_string();
    assert!(said.contains("memory_limit: expected one value, found an array"), "{said}");
    assert!(plan(dir.path(), &text.replace("['1M', '2M']", "'2M'"), |_| ()).is_ok());
}

#[test]
fn flags_win_over_the_file() {
    let dir = fixture();
    let text = "listen = ':81'\n[[app]]\nroot = 'site'\nworkers = 2\nmax_requests = 3\nrequest_timeout = 'off'\n\
                [app.ini]\na = 'file'\nb = 'file'\nextension = ['x', 'y']\n";
    let plan = plan(dir.path(), text, |args| {
        args.listen = vec![":82".parse().unwrap()];
        args.workers = Some(Workers { min: 3, max: 4 });
        args.ini = [("b", "flag"), ("zend_extension", "1"), ("zend_extension", "2")]
            .map(|(key, value)| KeyValue(key.into(), value.into()))
            .into();
        args.worker = Some("worker.php".into());
    })
    .unwrap();
    let spec = &plan.apps[0].spec;
    assert_eq!(plan.listen, [":82".parse().unwrap()]);
    assert_eq!(spec.workers, 3..=4);
    assert_eq!(spec.max_requests, Some(3));
    assert_eq!(spec.request_timeout, None);
    let ini: Vec<_> = spec.ini.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        ini,
        ["a=file", "extension=x", "extension=y", "b=flag", "zend_extension=1", "zend_extension=2"]
    );
    assert_eq!(
        spec.mode,
        Mode::Worker { script: dir.path().canonicalize().unwrap().join("site/worker.php") }
    );
}

#[test]
fn what_is_missing_or_contradicts_names_line_and_remedy() {
    let dir = fixture();
    let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
    let said = error("[[app]]\nname = 'x'\nroot = 'nowhere'\n");
    assert!(said.starts_with("hayate.toml:3: root: cannot use the directory "), "{said}");
    let said = error("[[app]]\nroot = 'site'\nworker = 'missing.php'\n");
    assert!(said.starts_with("hayate.toml:3: worker: cannot use the file "), "{said}");
    let two = |second: &str| format!("[[app]]\nname = 'a'\nroot = 'site'\n[[app]]\nroot = 'site'\n{second}");
    let said = error(&two("name = 'b'\n"));
    assert!(
        said.starts_with(
            "hayate.toml:4: application 'b' answers to any host and path / like application 'a'"
        ),
        "{said}"
    );
    let said = error(&two("name = 'a'\npath = '/a'\n"));
    assert!(said.starts_with("hayate.toml:6: a second application is called 'a'"), "{said}");
    let said = error("[[app]]\nroot = 'site'\npath = 'blog/'\n");
    assert!(said.starts_with("hayate.toml:3: path: ") && said.contains("write /blog"), "{said}");
    let said = error("trusted_proxies = ['10.0.0.0/8', 'nonsense']\n");
    assert!(said.starts_with("hayate.toml:1: 'nonsense' is no network"), "{said}");
    let said = error("\ntrusted_headers = ['X-Forwarded-For', 'x-real-ip']\n");
    let want = "hayate.toml:2: trusted_headers: expected some of x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-forwarded-port and \
                forwarded, found 'x-real-ip'";
    assert_eq!(said, want);
    let said = error("\nlisten = 'nonsense'\n");
    assert!(said.starts_with("hayate.toml:2: 'nonsense' is no address"), "{said}");
    assert!(error("group = 'staff'\n").starts_with("hayate.toml:1: group needs user"));
    assert!(error("\nuser = 'no-such'\n").starts_with("hayate.toml:2: user 'no-such' does not exist"));
    assert!(
        error("user = 'root'\ngroup = 'no-such'\n")
            .starts_with("hayate.toml:2: group 'no-such' does not exist")
    );
    let said = error("[[app]]\nroot = 'site'\nfront_controller = '../worker.php'\n");
    assert!(said.contains("outside the document root"), "{said}");
    let said = error("[[app]]\nroot = 'site'\nhosts = ['a b']\n");
    assert!(said.starts_with("hayate.toml:3: hosts: 'a b' is no host name"), "{said}");
}

#[test]
fn what_is_wrong_with_each_application_is_told_at_once() {
    let dir = fixture();
    let text = "[[app]]\nname = 'a'\nroot = 'nowhere'\n[[app]]\nname = 'b'\nroot = 'site'\nworker = 'nothing.php'\n[[app]]\nname = 'c'\nroot = 'site'\n";
    let said = plan(dir.path(), text, |_| {}).unwrap_err();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].contains("hayate.toml:3: ") && lines[1].contains("hayate.toml:7: "),
        "{said}"
    );
    let many: String = (0..100).map(|i| format!("[[app]]\nname = 'a{i}'\nroot = 'nowhere{i}'\n")).collect();
    let said = plan(dir.path(), &many, |_| {}).unwrap_err();
    assert_eq!((said.lines().count(), said.lines().last()), (MOST_ERRORS + 1, Some("and so on")), "{said}");
}

#[test]
fn headers_of_proxies_are_believed_as_far_as_they_are_named() {
    let dir = fixture();
    let believed = |text: &str, flags: &[&str]| {
        let text = format!("trusted_proxies = 'unix'\n{text}\n[[app]]\nroot = 'site'\n");
        let flags = flags.iter().map(|name| (*name).to_owned()).collect();
        let plan = plan(dir.path(), &text, |args| args.trusted_headers = flags).unwrap();
        (plan.trusted_headers, plan.is_behind_proxy())
    };
    let (usual, behind) = believed("", &[]);
    assert!(usual.x_forwarded_for && usual.x_forwarded_proto && usual.x_forwarded_port && behind);
    assert!(!usual.x_forwarded_host && !usual.forwarded, "what many proxies pass on");
    assert_eq!(believed("trusted_headers = []", &[]), (TrustedHeaders::NONE, false));
    let forwarded = TrustedHeaders { forwarded: true, ..TrustedHeaders::NONE };
    assert_eq!(believed("trusted_headers = 'Forwarded'", &[]), (forwarded, true));
    let host = TrustedHeaders { x_forwarded_host: true, ..TrustedHeaders::NONE };
    assert_eq!(
        believed("trusted_headers = 'forwarded'", &["X-Forwarded-Host"]),
        (host, false),
        "a flag wins"
    );
}

#[test]
fn b11_what_is_published_has_to_be_said_and_is_refused_where_it_holds_secrets() {
    let dir = fixture();
    let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
    let said = error("listen = ':80'\n");
    assert!(said.starts_with("hayate.toml: it names no application: add [[app]] with root = "), "{said}");
    let said = error("listen = ':80'\n\n[[app]]\nname = 'a'\n");
    assert!(said.starts_with("hayate.toml:3: root is missing: "), "{said}");
    assert!(plan(dir.path(), "listen = ':80'\n", |args| args.root = Some(dir.path().join("site"))).is_ok());
    for (keys, key) in [
        ("root = '/etc'", "root"),
        ("root = '/'", "root"),
        ("root = '/root'", "root"),
        ("root = 'site'\ndocument_root = '/var'", "document_root"),
        ("root = 'site'\nsendfile_roots = ['/home']", "sendfile_roots"),
        ("root = 'site'\nsendfile_roots = '/etc/ssl'", "sendfile_roots"),
    ] {
        let said = error(&format!("[[app]]\n{keys}\n"));
        let line = 1 + keys.lines().count();
        assert!(said.starts_with(&format!("hayate.toml:{line}: {key}: /")), "{said}");
        assert!(said.ends_with("(document_root, or ROOT on the command line)"), "{said}");
    }
    // The file itself, by whatever name the directory is called; what is not served may hold it.
    fs::write(dir.path().join("hayate.toml"), "").unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("site/up")).unwrap();
    for root in [".", "site/..", "site/up"] {
        let said = error(&format!("[[app]]\nroot = '{root}'\n"));
        assert!(said.contains(" holds hayate.toml, ") && said.contains("move that file"), "{said}");
    }
    assert!(plan(dir.path(), "[[app]]\nroot = '.'\ndocument_root = 'site'\n", |_| {}).is_ok());
    fs::write(dir.path().join("site/public/php.ini"), "").unwrap();
    let said = error("[[app]]\nroot = 'site'\nphp_ini = 'site/public/php.ini'\n");
    assert!(said.starts_with("hayate.toml:2: root: ") && said.contains("/php.ini"), "{said}");
    // Without a file as well.
    let flags =
        ServeArgs { php: Some("/bin/true".into()), root: Some("/etc".into()), ..ServeArgs::default() };
    let said = Plan::load(&flags).unwrap_err().to_string();
    assert!(said.starts_with("/etc is a directory of the system"), "{said}");
}

#[test]
fn c16_values_that_make_no_sense_are_refused_with_their_range() {
    let dir = fixture();
    let error = |text: &str| plan(dir.path(), text, |_| {}).unwrap_err();
    for (keys, said) in [
        ("queue_limit = 0", "queue_limit: 0 is out of range; write 1 to 1000000"),
        ("queue_limit = 1000001", "queue_limit: 1000001 is out of range; write 1 to 1000000"),
        ("max_memory = '4K'", "max_memory: 4096 is out of range; write 1M or more, or 0 for none"),
        ("path = '/a//b'", "path: '/a//b' must begin with a slash"),
        ("path = '/a/../b'", "path: '/a/../b' must begin with a slash"),
        ("path = '/a%20b'", "path: '/a%20b' must begin with a slash"),
        ("index = ['../x.php']", "index: '../x.php' is no file's name"),
        ("index = ''", "index: '' is no file's name"),
        ("deny = ['/data', 'conf']", "deny: 'conf' must begin with a slash"),
        ("deny = '/'", "deny: '/' must begin"),
        ("deny = ['/data', '/*.sql']", "deny: '/*.sql' looks like a pattern"),
        ("deny = '/{data,conf}'", "deny: '/{data,conf}' looks like a pattern"),
        ("deny = '/data '", "deny: '/data ' looks like a pattern, or has a space at its end"),
        ("inherit_env = 'A*B'", "inherit_env: 'A*B' is no variable's name"),
        ("inherit_env = ''", "inherit_env: '' is no"),
        ("charset = 'utf 8'", "charset: write the name of an encoding"),
        ("hosts = ['a.test:80']", "hosts: 'a.test:80' is no host name"),
        (
            "hosts = ['www.münchen.de']",
            "hosts: 'www.münchen.de' is no host name as browsers send it; write www.xn--mnchen-3ya.de",
        ),
        (
            "hosts = ['*.münchen.de']",
            "hosts: '*.münchen.de' is no host name as browsers send it; write *.xn--mnchen-3ya.de",
        ),
        ("hosts = ['ü b']", "hosts: 'ü b' is no host name; write example.org"),
        ("hosts = ['_']", "hosts: '_' is nobody's host; an application without hosts answers to all"),
    ] {
        let got = error(&format!("[[app]]\nroot = 'site'\n{keys}\n"));
        assert!(got.starts_with(&format!("hayate.toml:3: {said}")), "{got}");
    }
    assert!(error("listen = []\n").starts_with("hayate.toml:1: listen: write at least one address"));
    for metrics in ["/run/m.sock", "unix:/run/m.sock"] {
        let got = error(&format!("\nmetrics = '{metrics}'\n"));
        let said = format!(
            "hayate.toml:2: metrics: expected a TCP address such as \"127.0.0.1:9090\", found \"{metrics}\"; without one /metrics is on the \
             control socket, as it always is"
        );
        assert_eq!(got, said);
    }
    let many: Vec<String> = (0..200).map(|n| format!("'127.0.0.1:{}'", 10_000 + n)).collect();
    let got = error(&format!("listen = [{}]\n", many.join(", ")));
    assert!(got.starts_with("hayate.toml:1: listen: 200 addresses; write 128 at most"), "{got}");
    let text = "[[app]]\nroot = 'site'\n";
    let said = plan(dir.path(), text, |args| args.queue_limit = Some(0)).unwrap_err();
    assert_eq!(said, "--queue-limit: 0 is out of range; write 1 to 1000000");
    let spec =
        plan(dir.path(), "[[app]]\nroot = 'site'\nmax_memory = 0\n", |_| {}).unwrap().apps.remove(0).spec;
    assert_eq!(spec.max_memory, None);
}

/// What is not known is no framework: neither is index.php its front controller, nor does a file that cannot be read publish the project.
#[test]
fn a_composer_json_that_cannot_be_read_is_said_and_publishes_nothing() {
    let dir = fixture();
    let site = dir.path().join("site");
    fs::remove_dir_all(site.join("public")).unwrap();
    fs::write(site.join("index.php"), "").unwrap();
    fs::write(site.join("composer.json"), "{\"require\": {\"yiisoft/yii2\": \"*\"}").unwrap();
    let found = |keys: &str| plan(dir.path(), &format!("[[app]]\nroot = 'site'\n{keys}\n"), |_| {});
    let app = found("").unwrap().apps.remove(0);
    let warning = app.warning.unwrap();
    assert!(
        warning.contains("composer.json is no JSON: EOF") && warning.contains("classic mode"),
        "{warning}"
    );
    assert_eq!((app.remark, app.front_controller.script), (None, None));
    for keys in ["mode = 'worker'", "rewind = 'on'"] {
        let said = found(keys).unwrap_err();
        assert!(said.contains("composer.json is no JSON"), "{said}");
    }
    assert_eq!(found("mode = 'classic'").unwrap().apps.remove(0).warning, None, "it says what it is");
    assert_eq!(found("worker = 'worker.php'").unwrap().apps.remove(0).warning, None);
    fs::create_dir(site.join("web")).unwrap();
    fs::write(site.join("web/index.php"), "").unwrap();
    let said = found("").unwrap_err();
    assert!(said.contains("whether web/ or the whole directory is to be served is not known"), "{said}");
    let app = found("document_root = 'web'").unwrap().apps.remove(0);
    assert!(app.warning.is_some() && app.spec.document_root.ends_with("web"));
    fs::write(site.join("composer.json"), "{\"require\": {\"yiisoft/yii2\": \"*\"}}").unwrap();
    let app = found("").unwrap().apps.remove(0);
    assert!(app.warning.is_none() && app.spec.document_root.ends_with("web"), "{:?}", app.remark);
    assert_eq!(app.front_controller.script.as_deref(), Some("index.php"));
}

#[test]
fn d22_an_index_php_is_a_front_controller_where_something_says_so() {
    let dir = fixture();
    let site = dir.path().join("site");
    let put = |name: &str, text: &str| {
        fs::create_dir_all(site.join(name).parent().unwrap()).unwrap();
        fs::write(site.join(name), text).unwrap();
    };
    let found = |keys: &str, change: fn(&mut ServeArgs)| {
        let text = format!("[[app]]\nroot = 'site'\n{keys}\n");
        plan(dir.path(), &text, change).unwrap().apps.remove(0).front_controller
    };
    let index = Some("index.php".to_owned());
    assert_eq!(found("", |_| {}).script, index);
    assert_eq!(found("front_controller = ''", |_| {}).script, None);
    assert_eq!(found("", |args| args.front_controller = Some(String::new())).script, None);
    fs::rename(site.join("public"), site.join("web")).unwrap();
    assert!(found("document_root = 'web'", |_| {}).why.starts_with("the document root is called web; "));
    // An old application in one directory.
    let none = found("", |_| {});
    assert_eq!((none.script, &*none.why), (None, "there is no index.php"));
    put("index.php", "");
    let none = found("", |_| {});
    assert_eq!(none.script, None);
    assert!(
        none.why.contains("nothing says that index.php") && none.why.contains("--front-controller index.php")
    );
    assert_eq!(found("front_controller = 'index.php'", |_| {}).script, index);
    assert_eq!(found("", |args| args.front_controller = Some("index.php".into())).script, index);
    assert_eq!(found("worker = 'worker.php'", |_| {}).script, index);
    put(".htaccess", "RewriteRule ^(.*)$ index.php?url=$1 [L]\n");
    let none = found("", |_| {});
    assert!(
        none.script.is_none() && none.why.starts_with(".htaccess sends what is no file to index.php?url=$1")
    );
    put(".htaccess", "RewriteRule . /index.php [L]\n");
    assert!(found("", |_| {}).why.starts_with(".htaccess sends to index.php what is no file; "));
    fs::remove_file(site.join(".htaccess")).unwrap();
    for file in ["wp-load.php", "wp-blog-header.php", "wp-includes/version.php"] {
        put(file, "");
    }
    assert_eq!(found("", |_| {}).script, index);
    assert!(found("", |_| {}).why.starts_with("this is WordPress; "));
    let said =
        plan(dir.path(), "[[app]]\nroot = 'site'\n", |args| args.front_controller = Some("no.php".into()));
    assert!(said.unwrap_err().starts_with("--front-controller: cannot use no.php below "));
}

#[test]
fn a_root_is_for_one_application() {
    let dir = fixture();
    let text = "[[app]]\nname='a'\nroot='site'\n[[app]]\nname='b'\nroot='site'\npath='/b'\n";
    assert_eq!(plan(dir.path(), text, |_| {}).unwrap().apps.len(), 2);
    let said = plan(dir.path(), text, |args| args.root = Some(".".into())).unwrap_err();
    assert!(said.starts_with("ROOT, --worker and --front-controller are for one application"), "{said}");
}

#[test]
fn a_name_is_as_given_not_what_a_link_leads_to() {
    let dir = fixture();
    std::os::unix::fs::symlink("site", dir.path().join("current")).unwrap();
    let plan = |root: &str| plan(dir.path(), &format!("[[app]]\nroot = '{root}'\n"), |_| {}).unwrap();
    for root in ["current", "current/", "./current/.", &dir.path().join("current").to_string_lossy()] {
        let spec = &plan(root).apps[0].spec;
        assert_eq!(spec.name, "current", "{root}");
        assert_eq!(spec.document_root, dir.path().canonicalize().unwrap().join("site/public"));
    }
    assert_eq!(plan("current/public/..").apps[0].spec.name, "site");
}

#[test]
fn warm_up_requests_carry_the_sites_own_address() {
    let dir = fixture();
    let text = "listen = ':8081'\n[[app]]\nroot = 'site'\nworker = 'worker.php'\npath = '/blog'\nhosts = ['shop.test']\n\
                warmup = ['/', '/index.php/a?b=c']\n";
    let spec = plan(dir.path(), text, |_| {}).unwrap().apps.remove(0).spec;
    let [front, info] = &spec.warmup[..] else { panic!("{:?}", spec.warmup) };
    assert_eq!(
        (&*front.target, &*front.host, front.port, front.https),
        ("/blog/", "shop.test:8081", 8081, false)
    );
    assert_eq!((&*front.script_name, &*front.path_info), ("/blog/index.php", ""));
    assert_eq!(front.script, spec.document_root.join("index.php"));
    assert_eq!(info.target, "/blog/index.php/a?b=c");
    assert_eq!((&*info.script_name, &*info.path_info), ("/blog/index.php", "/a"));
    let spec =
        plan(dir.path(), &format!("trusted_proxies = '::1'\n{text}"), |_| {}).unwrap().apps.remove(0).spec;
    assert_eq!((&*spec.warmup[0].host, spec.warmup[0].https, spec.warmup[0].port), ("shop.test", true, 443));
}

#[test]
fn rewinding_is_for_worker_mode() {
    let dir = fixture();
    let app = |keys: &str| format!("[[app]]\nroot = 'site'\n{keys}\n");
    let spec = |keys: &str, change: fn(&mut ServeArgs)| {
        plan(dir.path(), &app(keys), change).unwrap().apps.remove(0).spec
    };
    let worker = "worker = 'worker.php'\n";
    let default = spec(worker, |_| {});
    assert_eq!((default.rewind, default.boot_timeout), (REWIND_BY_DEFAULT, Some(Duration::from_secs(60))));
    let on = spec(&format!("{worker}rewind = 'on'\nrewind_verify = 100"), |_| {});
    assert_eq!((on.rewind, on.warmup.len(), on.rewind_verify), (Rewind::On, 3, Some(100)));
    let targets =
        |visits: &[Visit]| visits.iter().map(|visit| visit.target.clone()).collect::<Vec<_>>().join(" ");
    let made_up = "/hayate-comparison/kappa /hayate-comparison-omega?hayate=psi";
    assert_eq!(targets(&on.compared), format!("/ / {made_up}"), "/ at two addresses");
    let fork = spec(&format!("{worker}rewind = 'on'\nwarmup = ['/a']"), |args| {
        args.rewind = Some(RewindChoice::Fork)
    });
    assert_eq!((fork.rewind, &*targets(&fork.warmup)), (Rewind::Fork, "/a"));
    let none =
        spec(&format!("{worker}rewind = 'on'\nwarmup = ['/a']"), |args| args.warmup = vec!["off".into()]);
    assert!(none.warmup.is_empty() && none.compared.is_empty());
    assert_eq!(spec(worker, |args| args.mode = Some(ModeChoice::Classic)).mode, Mode::Classic);

    let error = |keys: &str, change: fn(&mut ServeArgs)| plan(dir.path(), &app(keys), change).unwrap_err();
    let said = error("rewind = 'on'", |_| {});
    assert!(said.starts_with("hayate.toml:3: rewind: this application runs in classic mode"), "{said}");
    let said = error("warmup = ['/']", |_| {});
    assert!(said.starts_with("hayate.toml:3: warmup: "), "{said}");
    let said = error("", |args| args.rewind = Some(RewindChoice::On));
    assert!(said.starts_with("--rewind is for worker mode"), "{said}");
    let said = error("mode = 'worker'", |_| {});
    assert!(said.starts_with("hayate.toml:3: mode: worker mode needs a worker script"), "{said}");
    let said = error(&format!("mode = 'classic'\n{worker}"), |_| {});
    assert!(said.starts_with("hayate.toml:4: worker: "), "{said}");
    let said = error(&format!("{worker}rewind = 'on'\nwarmup = ['products']"), |_| {});
    assert!(said.starts_with("hayate.toml:5: warmup: 'products' is no path"), "{said}");
}

#[test]
fn keys_that_do_not_do_what_they_say_are_named() {
    let dir = fixture();
    let vain = |listen: &str, keys: &str| {
        let text = format!("listen = '{listen}'\n{keys}");
        let plan = plan(dir.path(), &text, |_| ()).unwrap();
        plan.vain_keys(&plan.apps[0])
    };
    let slow =
        |slow: &str| format!("[[app]]\nroot = 'site'\nrequest_timeout = '10s'\nslow_request = '{slow}'\n");
    assert_eq!(vain(":81", &slow("9s")), Vec::<String>::new());
    let [late] = <[String; 1]>::try_from(vain(":81", &slow("9.5s"))).unwrap();
    assert!(
        late.starts_with("slow_request = 9.5s is more than nine tenths of request_timeout (10s)"),
        "{late}"
    );
    assert_eq!(
        vain(":81", "[[app]]\nroot = 'site'\nrequest_timeout = 'off'\nslow_request = '1h'\n"),
        [""; 0]
    );
    let rate = "[[app]]\nroot = 'site'\n[[app.rule]]\nrate = { requests = 5, per = '1s' }\n";
    assert_eq!(vain(":81", rate), [""; 0]);
    assert_eq!(vain("unix:/run/x.sock", rate), [vain::RATES_OF_NOBODY]);
    let trusted = format!("trusted_proxies = ['unix']\n{rate}");
    assert_eq!(vain("unix:/run/x.sock", &trusted), [""; 0]);
    let rules = |first: &str| {
        format!("[[app]]\nroot = 'site'\n[[app.rule]]\n{first}stop = true\n[[app.rule]]\ndeny = 403\n")
    };
    let [last] = <[String; 1]>::try_from(vain(":81", &rules(""))).unwrap();
    assert!(last.starts_with("rule 1 is for all requests and has stop = true, so those behind it"), "{last}");
    assert_eq!(vain(":81", &rules("path = '/a'\n")), [""; 0]);
    for (first, what) in [
        ("redirect = '/x'", Some("redirect")),
        ("deny = 403", Some("deny")),
        ("respond = 'x'", Some("respond")),
        ("deny = 503", None),
        ("respond = 'x'\nstatus = 503", None),
        ("cache_control = 'no-store'", None),
    ] {
        let rules = format!("[[app]]\nroot = 'site'\n[[app.rule]]\n{first}\n[[app.rule]]\ndeny = 403\n");
        let said = vain(":81", &rules).join("\n");
        let want = what.map(|what| format!("rule 1 is for all requests and has {what}, so"));
        assert_eq!(want.as_ref().is_some_and(|want| said.contains(want)), want.is_some(), "{first}: {said}");
        assert_eq!(said.contains("is for all requests"), want.is_some(), "{first}: {said}");
    }
    let doubted = "[[app]]\nroot = 'site'\npath = '/blog'\n[[app.rule]]\nregex = '^admin'\ndeny = 403\n[[app.rule]]\npath = '/blog/x'\ndeny = 403\n";
    let said = vain(":81", doubted);
    assert!(
        said.len() == 2 && said[0].starts_with("rule 1: regex: ") && said[1].starts_with("rule 2: path: "),
        "{said:?}"
    );
    let last = "[[app]]\nroot = 'site'\n[[app.rule]]\nstop = true\n";
    assert_eq!(vain(":81", last), [""; 0]);
}

#[test]
fn addresses_that_nobody_gets_through_to_are_named() {
    let dir = fixture();
    let vain = |top: &str| {
        let text = format!("{top}\n[[app]]\nroot = 'site'\n");
        plan(dir.path(), &text, |_| ()).unwrap().vain_addresses()
    };
    let proxied = "listen = { address = ':81', proxy_protocol = true }";
    let [nobody] = <[String; 1]>::try_from(vain(proxied)).unwrap();
    assert!(
        nobody.starts_with("listen: http://0.0.0.0:81 wants a PROXY header, which is believed of nobody"),
        "{nobody}"
    );
    assert_eq!(vain(&format!("{proxied}\ntrusted_proxies = '10.0.0.1'")), [""; 0]);
    let unix = "listen = { address = 'unix:/run/x.sock', proxy_protocol = true }";
    assert_eq!(vain(unix).len(), 1);
    assert_eq!(vain(&format!("{unix}\ntrusted_proxies = 'unix'")), [""; 0]);
    assert_eq!(
        vain("listen = [':80', ':443']"),
        ["listen: http://0.0.0.0:443 speaks HTTP without TLS: set certificates or acme in [tls]"]
    );
    assert_eq!(vain("listen = ':80'"), [""; 0]);
    for (net, said) in [("0.0.0.0/0", true), ("::/0", true), ("::ffff:0:0/96", true), ("10.0.0.0/8", false)] {
        let vain = vain(&format!("trusted_proxies = '{net}'"));
        assert_eq!(vain.first().is_some_and(|vain| vain.contains("is everybody")), said, "{net}: {vain:?}");
    }
}

#[test]
fn what_may_run_has_time_to_finish() {
    let dir = fixture();
    let finish = |top: &str, app: &str| {
        let plan = plan(dir.path(), &format!("{top}\n[[app]]\nroot = 'site'\n{app}"), |_| {}).unwrap();
        plan.time_to_finish().as_secs()
    };
    assert_eq!(finish("", ""), 3600, "a client may be slow");
    assert_eq!(finish("drain_timeout = '2h'", ""), 2 * 3600);
    assert_eq!(finish("", "request_timeout = '3h'"), 3 * 3600);
    assert_eq!(finish("", "request_timeout = 'off'"), 3600, "somebody has to end them");
    assert_eq!(finish("", "[[app.rule]]\npath = '/a'\ntimeout = '90m'"), 90 * 60);
    assert_eq!(finish("", "[[app.rule]]\npath = '/a'\ntimeout = 'off'"), 3600);
    assert_eq!(finish("drain_timeout = 'off'", ""), ALWAYS.as_secs(), "no limit is no zero");
}
