//! Documents made from the source: man pages, completions, and the reference of hayate.toml.

use std::io::{self, Write};

use clap::CommandFactory;
use roff::{Inline, Roff, bold, italic, roman};
use serde_json::Value;

use crate::{
    args::{Cli, Generate},
    config::schema,
    plan::REWIND_BY_DEFAULT,
};

/// Prints one.
pub fn print(what: &Generate) -> io::Result<()> {
    // Into memory first: clap_complete panics on what it cannot write.
    let mut document = Vec::new();
    match what {
        Generate::Man => man(Cli::command(), &mut document)?,
        Generate::Completions { shell } => {
            clap_complete::generate(*shell, &mut commands_of_users(), "hayate", &mut document);
        }
        Generate::Configuration => document = configuration().into_bytes(),
        Generate::ManConfiguration => document = man_configuration().into_bytes(),
    }
    crate::end_with_the_reader();
    let mut out = io::stdout().lock();
    let written = out.write_all(&document).and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
}

/// The command line without what the server starts itself by: what completes for a shell knows nothing of hidden commands and flags.
fn commands_of_users() -> clap::Command {
    shown(&Cli::command()).version(env!("CARGO_PKG_VERSION"))
}

fn shown(command: &clap::Command) -> clap::Command {
    clap::Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(shown))
}

/// One page: what it is, then each sub-command with its options.
fn man(mut command: clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    command.build();
    let main = clap_mangen::Man::new(command.clone());
    main.render_title(page)?;
    main.render_name_section(page)?;
    writeln!(page, ".SH SYNOPSIS")?;
    let commands = || command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    for sub in commands() {
        let usage = sub.clone().render_usage().to_string();
        writeln!(page, "{}\n.br", usage.trim_start_matches("Usage: "))?;
    }
    main.render_description_section(page)?;
    let mut notes = Vec::new();
    main.render_extra_section(&mut notes)?;
    page.write_all(String::from_utf8_lossy(&notes).replace(".SH EXTRA", ".SH NOTES").as_bytes())?;
    for sub in commands() {
        let part = clap_mangen::Man::new(sub.clone());
        let mut section = Vec::new();
        part.render_description_section(&mut section)?;
        part.render_options_section(&mut section)?;
        part.render_extra_section(&mut section)?;
        // Its sections become parts of one.
        let section = String::from_utf8_lossy(&section);
        // Most commands have nothing there.
        let section = section.trim_end().strip_suffix(".SH EXTRA").unwrap_or(&section);
        let section = section
            .replace(".SH DESCRIPTION\n", "")
            .replace(".SH EXTRA\n", ".SH NOTES\n")
            .replace(".SH ", ".SS ");
        writeln!(page, ".SH \"HAYATE {}\"\n{section}", sub.get_name().to_uppercase())?;
    }
    let mut end = Roff::new();
    section(
        &mut end,
        "EXIT STATUS",
        &[
            ("0", "done; of serve: it was told to end, and all that had begun is finished"),
            (
                "1",
                "it could not be done, and standard error says why; of explain: an application does not boot",
            ),
            ("2", "the command line or the configuration is wrong"),
            ("3", "of status: the applications boot still"),
        ],
    );
    section(
        &mut end,
        "SIGNALS",
        &[
            ("SIGTERM, SIGINT, SIGQUIT", "finish what is being served and end; a second one ends at once"),
            ("SIGHUP", "read the configuration again and boot the applications anew, as hayate reload"),
            ("SIGUSR1", "open the access log anew, as after it was rotated"),
            ("SIGUSR2", "go on as the program that is installed now, as hayate upgrade"),
        ],
    );
    section(
        &mut end,
        "ENVIRONMENT",
        &[
            (
                "PHPRC, PHP_INI_SCAN_DIR",
                "where PHP looks for its ini files; php_ini and php_ini_scan_dir win over them",
            ),
            (
                "XDG_RUNTIME_DIR",
                "where the control socket of a user's server lies, as hayate.sock; without it, serve has none unless control says where",
            ),
            (
                "XDG_DATA_HOME, HOME",
                "below which a user's server keeps the certificates that it obtains by ACME (HOME: in .local/share); acme_storage wins over them",
            ),
            (
                "PATH",
                "where hayate-php8.4 and the like are looked for, after the directories of hayate itself, and hayate when it is upgraded",
            ),
            ("TMPDIR", "where uploads and large bodies lie until PHP has read them; /tmp otherwise"),
            (
                "NOTIFY_SOCKET, LISTEN_FDS",
                "of systemd: where serve says that it is ready, and the sockets that it takes over",
            ),
        ],
    );
    end.control("PP", []);
    end.text([roman(
        "Of all this PHP gets what inherit_env names. Besides it has env, and USER and HOME of its user.",
    )]);
    section(
        &mut end,
        "FILES",
        &[
            ("/etc/hayate/hayate.toml", "the configuration of the service"),
            ("/run/hayate/control.sock", "the control socket of root's server"),
            ("/usr/share/doc/hayate/docs", "the guides, in Markdown: begin with deployment.md"),
        ],
    );
    end.control("SH", ["SEE ALSO"]);
    end.text([
        bold("hayate.toml"),
        roman("(5), "),
        bold("hayate-lab"),
        roman("(1), "),
        bold("systemctl"),
        roman("(1)"),
    ]);
    page.write_all(end.render().as_bytes())
}

/// A section of terms and what they mean.
fn section(page: &mut Roff, title: &str, terms: &[(&str, &str)]) {
    page.control("SH", [title]);
    for (term, meaning) in terms {
        page.control("TP", []);
        page.text([bold(*term)]);
        page.text([roman(*meaning)]);
    }
}

fn configuration() -> String {
    let mut out = String::from(
        "# hayate.toml\n\n\
         <!-- Made by `hayate generate configuration` from crates/hayate/src/config/keys.rs; change it there. -->\n\n\
         `hayate serve --config FILE` reads it; `hayate check --config FILE` says what is wrong with it, with the line. Flags win over\n\
         keys. Relative paths start from the file's directory unless said otherwise. Sizes are written `128M` (K, M, G, or bytes), times\n\
         `30s` (ms, s, m, h, d, or seconds; 1ms to 365d; `off` for none). `hayate reload` reads it again; what belongs to the process (`control`, `metrics`, `pid_file`,\n\
         `front_user`, `front_threads`, `log_level`, `log_format`) changes with a restart only. PHP changes its user with its next processes, so with a reload.\n\n\
         A key or a table that does not exist is an error, which names the nearest that does, or where it stands. Names below `[app.ini]` are PHP's:\n\
         `hayate check` warns of those that neither PHP nor an extension knows. A name with a dot in it wants quotes: `\"session.save_path\" = \"/srv/sessions\"`.\n\n\
         ```toml\nlisten = \":80\"\nuser = \"www-data\"\naccess_log = \"/var/log/hayate/access.log\"\n\n\
         [[app]]\nroot = \"/srv/shop/current\"\nhosts = [\"shop.example.org\"]\nworker = \"public/worker.php\"\nworkers = \"2-8\"\n\n\
         [app.ini]\nmemory_limit = \"256M\"\n\n\
         [[app]]\nname = \"blog\"\nroot = \"/srv/blog\"\n```\n",
    );
    for (title, intro, table) in sections() {
        out += &format!("\n## {title}\n\n");
        if !intro.is_empty() {
            out += &format!("{intro}\n\n");
        }
        out += "| key | meaning | default | flag |\n| --- | --- | --- | --- |\n";
        for (name, property) in keys(table) {
            let (meaning, default, flag) = columns(property);
            let meaning = meaning.replace('|', "\\|");
            out += &format!("| `{name}` | {meaning} | {default} | {flag} |\n");
        }
    }
    out
}

/// The tables of the file: title, what it is for, in Markdown, and its schema.
fn sections() -> [(&'static str, &'static str, &'static Value); 9] {
    let defs = &schema()["$defs"];
    [
        ("Top of the file", "", schema()),
        (
            "[tls]",
            "TLS is on when `certificates` or `acme` is set, or by `--tls HOST`. See [tls](tls.md).",
            &defs["Tls"],
        ),
        (
            "[compression]",
            "What PHP answers, and static files that have no `.br`, `.zst` or `.gz` beside them. See [compression](compression.md).",
            &defs["Compression"],
        ),
        ("[limits]", "What a client may do.", &defs["Limits"]),
        (
            "[[app]]",
            "One application each. `[app.ini]` and `[app.env]` are tables of their own, and so is each `[[app.rule]]`.",
            &defs["App"],
        ),
        (
            "[[app.rule]]",
            "When something is done with a request, and what. See [rules](rules.md).\n\n\
             ```toml\n[[app.rule]]\npath = \"/admin\"\nallow = [\"10.0.0.0/8\"]\nbasic_auth = { users = \"staff.htpasswd\" }\n\n\
             [[app.rule]]\nglob = \"/**/*.{css,js,woff2}\"\ncache_control = \"public, max-age=31536000\"\n```",
            &defs["Rule"],
        ),
        ("rate", "In a rule, or `[app.rule.rate]` behind it.", &defs["Rate"]),
        ("basic_auth", "In a rule, or `[app.rule.basic_auth]` behind it.", &defs["BasicAuth"]),
        ("headers", "In a rule, or `[app.rule.headers]` behind it.", &defs["Headers"]),
    ]
}

/// The keys of a table that are no tables themselves.
fn keys(table: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let properties = table["properties"].as_object().expect("a table has keys");
    let is_table = |name: &str| matches!(name, "limits" | "tls" | "compression" | "app" | "rule");
    properties.iter().filter(move |(name, _)| !is_table(name))
}

/// hayate.toml(5), of the same.
fn man_configuration() -> String {
    let mut page = Roff::new();
    page.control("TH", ["hayate.toml", "5", "", concat!("hayate ", env!("CARGO_PKG_VERSION"))]);
    // Keys, values and flags are copied from here: none is broken at the end of a line.
    page.control("nh", []);
    page.control("SH", ["NAME"]);
    page.text([roman("hayate.toml - configuration of the PHP application server Hayate")]);
    page.control("SH", ["DESCRIPTION"]);
    let mut example = None::<Vec<&str>>;
    for line in configuration().split("\n## ").next().unwrap_or_default().lines().skip(4) {
        prose(&mut page, line, &mut example);
    }
    for (title, intro, table) in sections() {
        page.control("SH", [title]);
        let mut example = None;
        intro.lines().for_each(|line| prose(&mut page, line, &mut example));
        for (name, property) in keys(table) {
            let (meaning, default, flag) = columns(property);
            page.control("TP", []);
            page.text([bold(name.as_str())]);
            page.text(inlines(&meaning));
            if !default.is_empty() {
                page.text([vec![roman("Default: ")], inlines(&default), vec![roman(".")]].concat());
            }
            if !flag.is_empty() {
                page.text([vec![roman("Flag: ")], inlines(&flag), vec![roman(".")]].concat());
            }
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("hayate"), roman("(1); the guides in "), italic("/usr/share/doc/hayate/docs")]);
    page.render()
}

/// A line of Markdown. `example`: the lines so far of a block of code that it is in.
fn prose<'a>(page: &mut Roff, line: &'a str, example: &mut Option<Vec<&'a str>>) {
    match (line, &mut *example) {
        (line, None) if line.starts_with("```") => *example = Some(Vec::new()),
        (line, Some(lines)) if line.starts_with("```") => {
            page.control("PP", []);
            page.control("EX", []);
            for line in std::mem::take(lines) {
                page.text([roman(line)]);
            }
            page.control("EE", []);
            *example = None;
        }
        (line, Some(lines)) => lines.push(line),
        ("", None) => {
            page.control("PP", []);
        }
        (line, None) => {
            page.text(inlines(line));
        }
    }
}

/// Markdown in a line: code is bold, and of a link its words are left.
fn inlines(text: &str) -> Vec<Inline> {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else { break };
        let (ahead, linked) = before.rsplit_once('[').unwrap_or(("", before));
        words += ahead;
        words += linked;
        if !target.starts_with('#') {
            words += &format!(" (`{target}`)");
        }
        rest = behind;
    }
    words += rest;
    let parts = words.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

/// Takes `Default: …. Flag: ….` off the end of a description.
fn columns(property: &Value) -> (String, String, String) {
    let text = property["description"].as_str().unwrap_or_default().replace('\n', " ");
    let (text, flag) = text.split_once(" Flag: ").unwrap_or((&text, ""));
    let (text, default) = text.split_once(" Default: ").unwrap_or((text, ""));
    let trim = |text: &str| text.trim().trim_end_matches('.').replace("@REWIND@", REWIND_BY_DEFAULT.name());
    (text.trim().to_owned(), trim(default), trim(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described() {
        let defs = ["Limits", "Tls", "Compression", "App", "Rule", "Rate", "BasicAuth", "Headers"]
            .map(|name| &schema()["$defs"][name]);
        for table in std::iter::once(schema()).chain(defs) {
            for (name, property) in table["properties"].as_object().unwrap() {
                let (meaning, default, _) = columns(property);
                assert!(meaning.len() > 10, "{name} has no description");
                let table = matches!(name.as_str(), "limits" | "tls" | "compression" | "app" | "rule");
                assert!(table || !default.is_empty(), "{name} has no default");
            }
        }
    }

    #[test]
    fn the_man_page_holds_every_command() {
        let mut page = Vec::new();
        man(Cli::command(), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for word in
            ["HAYATE SERVE", "HAYATE RELOAD", "queue", "SIGUSR1", "EXIT STATUS", "ENVIRONMENT", "NOTES"]
        {
            assert!(page.contains(word), "{word}");
        }
        assert!(!page.contains("EXTRA"), "{page}");
    }

    #[test]
    fn what_is_hidden_does_not_complete() {
        let mut commands = commands_of_users();
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut commands, "hayate", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("explain") && script.contains("json"), "{shell}");
            assert!(!script.contains("user-of"), "{shell}");
        }
    }

    #[test]
    fn the_page_of_the_configuration_holds_every_key() {
        let page = man_configuration();
        for (title, _, table) in sections() {
            for (name, _) in keys(table) {
                assert!(page.contains(&format!("\\fB{}\\fR\n", name)), "{title}: {name}");
            }
        }
        assert!(!page.contains('`') && !page.contains("]("), "Markdown is left");
    }
}
