//! A short account in Markdown, for a README: of each part the verdict and one table.
//!
//! Promises: it stands by itself (machine, date, command, doubts), and no line of prose is longer than [`WIDTH`].

use std::fmt::Write;

use super::{
    date,
    number::{interval, median, number, or_dash},
    text::part_title,
    verdict::{by_title, verdict},
};
use crate::{
    data::Kind,
    machine::show_cpus,
    result::{Part, Results, rows},
};

/// Characters of a line of prose, at most; a word that is longer stands alone.
const WIDTH: usize = 160;

/// Everything that fits.
pub fn render(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, results);
    out
}

fn write(out: &mut String, results: &Results) -> std::fmt::Result {
    let machine = &results.machine;
    let origin = format!(
        "{}, {}{}: {} processors, servers on {}, generator on {}; {}, {}, PHP {}.",
        date::date(results.started),
        if machine.virtual_machine { "a virtual machine, " } else { "" },
        machine.cpu,
        machine.processors,
        show_cpus(&results.cores.server),
        show_cpus(&results.cores.load),
        machine.system,
        machine.kernel,
        results.php,
    );
    writeln!(out, "{}", wrapped(&origin, ""))?;
    for part in &results.parts {
        writeln!(
            out,
            "\n### {}\n\n{}\n",
            escaped(&part_title(part)),
            wrapped(&escaped(&verdict(part, by_title)), "")
        )?;
        match part.kind {
            Kind::Saturate => limits(out, part)?,
            Kind::Run | Kind::Ladder => table(out, part)?,
        }
    }
    let warnings = results.warnings();
    if !warnings.is_empty() {
        writeln!(out, "\nBefore you believe it:\n")?;
        for warning in warnings {
            writeln!(out, "- {}", wrapped(&escaped(&warning), "  "))?;
        }
    }
    Ok(())
}

fn table(out: &mut String, part: &Part) -> std::fmt::Result {
    let of = part
        .baseline()
        .map_or_else(|| "of the baseline".to_owned(), |baseline| format!("× {}", escaped(&baseline.title)));
    let confidence = if part.rounds > 1 { " (95 %)" } else { "" };
    writeln!(
        out,
        "| | requests/s | {of}{confidence} | CPU µs/request | {of}{confidence} | p50 ms | p99 ms | p99.9 ms | memory MB | OK % |"
    )?;
    writeln!(out, "| --- |{}", " ---: |".repeat(9))?;
    for row in rows(part).iter().filter(|row| row.requests > 0) {
        let latency = row.latency.clone().unwrap_or_default();
        let cells = [
            escaped(&row.subject.title),
            median(row.rate),
            interval(row.rate_ratio),
            median(row.cpu_us),
            interval(row.cpu_ratio),
            or_dash(latency.p50),
            or_dash(latency.p99),
            or_dash(latency.p999),
            median(row.memory_max),
            super::number::percent(row.ok_percent),
        ];
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

fn limits(out: &mut String, part: &Part) -> std::fmt::Result {
    writeln!(out, "| | limit, requests/s | knee | what gave way |\n| --- | ---: | ---: | --- |")?;
    for subject in part.ranked() {
        if let Some(saturation) = &subject.saturation {
            let (limit, knee) = (number(saturation.limit), or_dash(saturation.knee));
            let (title, conclusion) = (escaped(&subject.title), escaped(&saturation.conclusion));
            writeln!(out, "| {title} | {limit} | {knee} | {conclusion} |")?;
        }
    }
    Ok(())
}

/// What Markdown would take for something else.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if matches!(character, '|' | '*' | '_' | '`' | '<' | '[' | '\\') {
            out.push('\\');
        }
        out.push(if character == '\n' { ' ' } else { character });
    }
    out
}

/// Lines of at most [`WIDTH`], all but the first after `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let width = lines.last().map_or(0, |line| line.chars().count());
        // At the beginning of a line these would begin a list or a heading.
        let fits = width + 1 + word.chars().count() + indent.len() <= WIDTH - 2;
        if width > 0 && !fits && !matches!(word, "+" | "-" | "#" | ">") {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{indent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_and_means_nothing_else() {
        let text = wrapped(&"word ".repeat(100), "  ");
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH) && text.lines().count() == 4,
            "{text}"
        );
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")));
        assert_eq!(wrapped(&"x".repeat(200), "").lines().count(), 1);
        assert!(wrapped(&"nginx + ".repeat(60), "").lines().all(|line| !line.starts_with('+')));
        assert_eq!(escaped("a|b_c `d`\n<e>"), "a\\|b\\_c \\`d\\` \\<e>");
    }
}
