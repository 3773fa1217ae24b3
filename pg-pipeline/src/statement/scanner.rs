//! Words, quotes and comments of a statement, as PostgreSQL's scanner tells them apart (`src/backend/parser/scan.l`).
//!
//! Knows nothing of what the words mean.

/// The words of a text outside of quotes and comments, each with what stands behind it.
pub(super) struct WordsOutside<'a>(pub(super) &'a str);

impl<'a> Iterator for WordsOutside<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        loop {
            let text = self.0;
            let length = match *text.as_bytes() {
                [] => return None,
                [b'-', b'-', ..] => text.find(['\n', '\r']).unwrap_or(text.len()),
                [b'/', b'*', ..] => text.len() - behind_comment(text).len(),
                [b'e' | b'E', b'\'', ..] => 1 + quoted(&text[1..], '\'', true),
                [b'\'', ..] => quoted(text, '\'', false),
                [b'"', ..] => quoted(text, '"', false),
                [b'$', ..] => in_dollars(text),
                [first, ..] if is_word(first) => {
                    let end = text.bytes().position(|byte| !is_word(byte) && byte != b'$');
                    let (word, behind) = text.split_at(end.unwrap_or(text.len()));
                    self.0 = behind;
                    return Some((word, behind));
                }
                _ => 1,
            };
            self.0 = &text[length..];
        }
    }
}

/// What follows white space and comments.
pub(super) fn behind_blanks(text: &str) -> &str {
    let mut text = text.trim_ascii_start();
    loop {
        let rest = match text.as_bytes() {
            [b'-', b'-', ..] => text.find(['\n', '\r']).map_or("", |end| &text[end..]),
            [b'/', b'*', ..] => behind_comment(text),
            _ => return text,
        };
        text = rest.trim_ascii_start();
    }
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// How long the quoted text is that `text` begins with, with its quotes; all of it if it does not end. A quote inside is
/// written twice, which looks like two texts.
fn quoted(text: &str, quote: char, escapes: bool) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == quote {
            return at + 1;
        }
        if escapes && character == '\\' {
            characters.next();
        }
    }
    text.len()
}

/// The same for what stands between `$$` and `$$`, or `$name$` and `$name$`; 1 for a parameter or a lone `$`.
fn in_dollars(text: &str) -> usize {
    let name = text[1..].bytes().position(|byte| !is_word(byte)).unwrap_or(text.len() - 1);
    let (tag, rest) = text.split_at(1 + name);
    if !rest.starts_with('$') || tag[1..].starts_with(|first: char| first.is_ascii_digit()) {
        return 1;
    }
    let tag = &text[..=tag.len()];
    text[tag.len()..].find(tag).map_or(text.len(), |end| end + 2 * tag.len())
}

/// What follows the comment that `text` begins with. Comments nest.
pub(super) fn behind_comment(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = bytes.get(at..at + 2) {
        match pair {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth = depth.saturating_sub(1);
                at += 2;
                if depth == 0 {
                    return &text[at..];
                }
            }
            _ => at += 1,
        }
    }
    ""
}
