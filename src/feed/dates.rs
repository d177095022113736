//! Dates as feeds write them → Unix seconds. One tokenizer instead of a list of formats: feeds mix RFC 822, RFC 3339
//! and their own inventions. Where no zone is given, or an unknown one, UTC is meant.

/// Reads a date, `None` when it is none. Years 1–9999; hour 24 counts as 0 of the same day.
///
/// Known forms: RFC 3339 with or without seconds, `T` and zone; RFC 822 in any order of day and month, with or without
/// weekday, comma, seconds, zone; `2020/1/10 14:33:00`; `10:00 PM`; Unix seconds or milliseconds.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.len() > 80 || !text.is_ascii() {
        return None;
    }
    unix(text).or_else(|| iso(text)).or_else(|| words(text))
}

fn unix(text: &str) -> Option<i64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match text.len() {
        9 | 10 => text.parse().ok(),
        13 => text.parse::<i64>().ok().map(|ms| ms / 1000),
        _ => None,
    }
}

/// Days since 1970-01-01 of a Gregorian date (H. Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=9999).contains(&year) || !(1..=last).contains(&day) {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y - era * 400;
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468)
}

/// Takes digits off the front.
fn number(text: &str, max: usize) -> Option<(i64, &str)> {
    let len = text.bytes().take(max).take_while(u8::is_ascii_digit).count();
    Some((text.get(..len)?.parse().ok()?, &text[len..]))
}

/// Takes `hh:mm`, `hh:mm:ss` or with a fraction off the front: seconds of the day.
fn clock(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, mut rest) = match rest.strip_prefix(':').and_then(|r| number(r, 2)) {
        Some((second, rest)) => (second, rest),
        None => (0, rest),
    };
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    // 60 is a leap second.
    (hour <= 24 && minute < 60 && second <= 60).then_some(((hour % 24) * 3600 + minute * 60 + second.min(59), rest))
}

/// Seconds east of Greenwich.
fn zone(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix(['+', '-']) {
        let (hours, rest) = number(digits, 2)?;
        let minutes = number(rest.trim_start_matches(':'), 2).map_or(0, |(m, _)| m);
        if hours > 15 || minutes > 59 {
            return None;
        }
        let seconds = hours * 3600 + minutes * 60;
        return Some(if text.starts_with('-') { -seconds } else { seconds });
    }
    let quarter_hours = match text.to_ascii_uppercase().as_str() {
        "Z" | "GMT" | "UT" | "UTC" | "WET" => 0,
        "EST" | "CDT" => -20,
        "EDT" => -16,
        "CST" | "MDT" => -24,
        "MST" | "PDT" => -28,
        "PST" | "AKDT" => -32,
        "AKST" => -36,
        "HST" => -40,
        "AST" | "EDST" => -16,
        "ADT" | "BRT" => -12,
        "CET" | "MET" | "BST" | "WEST" => 4,
        "CEST" | "MEST" | "EET" | "SAST" => 8,
        "EEST" | "MSK" => 12,
        "IST" => 22,
        "HKT" | "SGT" | "AWST" => 32,
        "JST" | "KST" => 36,
        "AEST" => 40,
        "AEDT" => 44,
        "NZST" => 48,
        "NZDT" => 52,
        _ => return None,
    };
    Some(quarter_hours * 900)
}

fn iso(text: &str) -> Option<i64> {
    let (year, rest) = number(text, 4)?;
    if text.len() - rest.len() != 4 {
        return None;
    }
    let separator = rest.chars().next().filter(|c| matches!(c, '-' | '/' | '.'));
    let (month, rest) = match separator {
        Some(c) => number(rest.strip_prefix(c)?, 2)?,
        None if rest.len() >= 4 => number(rest, 2)?,
        None => return Some(days(year, 1, 1)? * 86400).filter(|_| rest.is_empty()),
    };
    let (day, rest) = match separator {
        Some(c) if rest.starts_with(c) => number(&rest[1..], 2)?,
        Some(_) if rest.is_empty() => (1, rest),
        Some(_) => return None,
        None => number(rest, 2)?,
    };
    let midnight = days(year, month, day)? * 86400;
    let rest = rest.trim_start_matches(['T', 't', ' ']);
    if rest.is_empty() {
        return Some(midnight);
    }
    let (mut seconds, rest) = clock(rest)?;
    let mut offset = 0;
    for word in rest.split_whitespace() {
        match half_day(word, seconds) {
            Some(s) => seconds = s,
            None => offset = zone(word).unwrap_or(offset),
        }
    }
    Some(midnight + seconds - offset)
}

/// `AM` and `PM`.
fn half_day(word: &str, seconds: i64) -> Option<i64> {
    let (noon, hour) = (12 * 3600, seconds / 3600);
    match word.to_ascii_lowercase().trim_end_matches('.') {
        "am" | "a.m" => Some(if hour == 12 { seconds - noon } else { seconds }),
        "pm" | "p.m" => Some(if hour < 12 { seconds + noon } else { seconds }),
        _ => None,
    }
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// The number of an English weekday by its first three letters, 0 = Monday.
pub(super) fn weekday(word: &str) -> Option<u8> {
    let start = word.get(..3)?.to_ascii_lowercase();
    WEEKDAYS.iter().position(|d| *d == start).map(|i| i as u8)
}

fn words(text: &str) -> Option<i64> {
    let (mut day, mut month, mut year, mut time, mut offset) = (None, None, None, None, None);
    for word in text.split([' ', ',', '\t', '\n', '\r', '(', ')']).filter(|w| !w.is_empty()) {
        if word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit()) && time.is_none() {
            let (seconds, rest) = clock(word)?;
            time = Some(half_day(rest, seconds).unwrap_or(seconds));
            offset = offset.or(zone(rest));
        } else if let Some(seconds) = time.and_then(|t| half_day(word, t)) {
            time = Some(seconds);
        } else if let Some(east) = zone(word).filter(|_| time.is_some()) {
            offset = offset.or(Some(east));
        } else {
            // `10-Jan-2024` comes apart here.
            for part in word.split('-').filter(|p| !p.is_empty()) {
                let digits = part.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '.');
                match (digits.len(), digits.parse::<i64>()) {
                    (4, Ok(n)) if year.is_none() => year = Some(n),
                    (1 | 2, Ok(n)) if day.is_none() => day = Some(n),
                    (2, Ok(n)) if year.is_none() => year = Some(if n < 70 { 2000 + n } else { 1900 + n }),
                    (0, _) => {
                        let name = part.get(..3).map(str::to_ascii_lowercase);
                        let found = name.and_then(|n| MONTHS.iter().position(|m| *m == n));
                        month = month.or(found.map(|i| i as i64 + 1));
                    }
                    _ => return None,
                }
            }
        }
    }
    Some(days(year?, month?, day?)? * 86400 + time.unwrap_or(0) - offset.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_forms_that_feeds_use() {
        const T: i64 = 1_704_880_800; // 2024-01-10 10:00 UTC
        for (text, want) in [
            ("Wed, 10 Jan 2024 10:00:00 GMT", T),
            ("Wed, 10 Jan 2024 10:00:00 +0000", T),
            ("Wed, 10 Jan 24 12:00:00 +0200", T),
            ("Wed, 10 Jan 2024 12:00:00 CEST", T),
            ("Wed 10 January 2024 10:00 UTC", T),
            ("10 Jan 2024 10:00:00", T),
            ("Wednesday, January 10, 2024 10:00 AM", T),
            ("Jan 10th, 2024 10:00:00 Z", T),
            ("10-Jan-2024 05:00:00 EST", T),
            ("Wed Jan 10 10:00:00 2024", T),
            ("Wed, 10 Jan 2024 10:00 PM", T + 12 * 3600),
            ("Wed, 10 Jan 2024 24:00:00 GMT", T - 10 * 3600),
            ("Wed, 10 Jan 2024", T - 10 * 3600),
            ("2024-01-10T10:00:00Z", T),
            ("2024-01-10T10:00:00.123+00:00", T),
            ("2024-01-10T12:00:00+0200", T),
            ("2024-01-10 10:00:00", T),
            ("2024-01-10T10:00", T),
            ("2024-01-10T10:00Z", T),
            ("2024-01-10 10:00:00 UTC", T),
            ("2024/1/10 10:00:00", T),
            ("2024-01-10", T - 10 * 3600),
            ("20240110T10:00:00Z", T),
            ("1704880800", T),
            ("1704880800000", T),
            ("1969-12-31T23:59:59Z", -1),
        ] {
            assert_eq!(parse(text), Some(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_date() {
        for text in ["", "yesterday", "2024-13-01", "31 Feb 2024 10:00", "Wed", "10:00", "99999999999999", "é", "+"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
