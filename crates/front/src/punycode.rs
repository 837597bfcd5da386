//! Host names in letters of their own as they go over the network (RFC 3492), for words that help.

/// The code's parameters (5).
const BASE: u32 = 36;
const LEAST: u32 = 1;
const MOST: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const BIAS: u32 = 72;
/// The first character that is none of ASCII.
const FIRST: u32 = 0x80;
/// Bytes of a label at most.
const LABEL: usize = 63;

/// A name whose labels are in ASCII; `None` where one would be too long. Letters become small ones.
pub(crate) fn to_ascii(name: &str) -> Option<String> {
    let labels = name.split('.').map(|label| {
        let label = label.to_lowercase();
        let label = if label.is_ascii() { label } else { format!("xn--{}", encoded(&label)?) };
        (label.len() <= LABEL).then_some(label)
    });
    labels.collect::<Option<Vec<_>>>().map(|labels| labels.join("."))
}

/// See there, 6.3.
fn encoded(label: &str) -> Option<String> {
    // Nothing below overflows with a label of few characters.
    let points: Vec<u32> = label.chars().take(LABEL + 1).map(u32::from).collect();
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(out.len()).ok()?;
    if basic > 0 {
        out.push('-');
    }
    let (mut at, mut delta, mut bias, mut handled) = (FIRST, 0u32, BIAS, basic);
    while (handled as usize) < points.len() {
        let next = points.iter().copied().filter(|point| *point >= at).min()?;
        delta = delta.checked_add((next - at).checked_mul(handled + 1)?)?;
        at = next;
        for point in &points {
            if *point < at {
                delta = delta.checked_add(1)?;
            }
            if *point == at {
                write(delta, bias, &mut out);
                bias = adapted(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        at = at.checked_add(1)?;
    }
    Some(out)
}

/// A number, in digits of which the last says that it is that.
fn write(mut number: u32, bias: u32, out: &mut String) {
    let digit = |n: u32| {
        char::from_digit(n, BASE).map(|_| if n < 26 { b'a' + n as u8 } else { b'0' + (n - 26) as u8 })
    };
    let mut weight = BASE;
    loop {
        let threshold = weight.saturating_sub(bias).clamp(LEAST, MOST);
        if number < threshold {
            out.extend(digit(number).map(char::from));
            return;
        }
        let rest = number - threshold;
        out.extend(digit(threshold + rest % (BASE - threshold)).map(char::from));
        number = rest / (BASE - threshold);
        weight += BASE;
    }
}

/// See there, 6.1.
fn adapted(delta: u32, points: u32, is_first: bool) -> u32 {
    let mut delta = if is_first { delta / DAMP } else { delta / 2 };
    delta += delta / points;
    let mut steps = 0;
    while delta > (BASE - LEAST) * MOST / 2 {
        delta /= BASE - LEAST;
        steps += BASE;
    }
    steps + (BASE - LEAST + 1) * delta / (delta + SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_browsers_send_them() {
        for (name, want) in [
            ("münchen.de", "xn--mnchen-3ya.de"),
            ("www.München.de", "www.xn--mnchen-3ya.de"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
            ("правда.рф", "xn--80aafi6cg.xn--p1ai"),
            ("faß.de", "xn--fa-hia.de"),
            ("a.de", "a.de"),
            ("", ""),
        ] {
            assert_eq!(to_ascii(name).as_deref(), Some(want), "{name}");
        }
        assert_eq!(to_ascii(&"ü".repeat(100)), None);
        assert_eq!(to_ascii(&format!("{}\u{10ffff}", "ü".repeat(62))), None);
    }
}
