//! The ends of commands and replies in a byte stream of the Redis protocol.

/// The length of the first command or reply in `bytes`. `None`: it is not complete yet.
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    let line = line_len(bytes)?;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' | b'=' | b'!' => match usize::try_from(number()?) {
            Ok(len) => (bytes.len() >= line + len + 2).then_some(line + len + 2),
            Err(_) => Some(line), // null
        },
        b'*' | b'~' | b'>' => frames_len(bytes, line, number()?),
        b'%' => frames_len(bytes, line, 2 * number()?),
        _ => Some(line),
    }
}

fn frames_len(bytes: &[u8], start: usize, count: i64) -> Option<usize> {
    let mut end = start;
    for _ in 0..count.max(0) {
        end += frame_len(bytes.get(end..)?)?;
    }
    Some(end)
}

fn line_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

/// The words of a complete command, as text.
pub fn words(frame: &[u8]) -> Vec<String> {
    byte_words(frame).into_iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The words of a complete command.
pub fn byte_words(frame: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let mut at = line_len(frame).unwrap_or(frame.len());
    while at < frame.len() {
        let line = line_len(&frame[at..]).expect("a complete command");
        let len = frame_len(&frame[at..]).expect("a complete command");
        words.push(&frame[at + line..at + len - 2]);
        at += len;
    }
    words
}

/// A command of these words.
pub fn command(words: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        frame.extend(format!("${}\r\n", word.len()).into_bytes());
        frame.extend_from_slice(word);
        frame.extend(b"\r\n");
    }
    frame
}

#[test]
fn a_command_is_split_into_words() {
    let frame = b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n";
    assert_eq!(words(frame), ["PING", "hi"]);
    assert_eq!(command(&byte_words(frame).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()), frame);
}

#[test]
fn an_incomplete_command_has_no_length() {
    let command = b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n";
    assert_eq!(frame_len(command), Some(command.len()));
    for end in 0..command.len() {
        assert_eq!(frame_len(&command[..end]), None, "{end}");
    }
}

#[test]
fn the_first_of_two_frames_is_found() {
    for whole in [
        "+OK\r\n",
        ":-2\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
        "%1\r\n+a\r\n:1\r\n",
        "_\r\n",
    ] {
        let two = format!("{whole}{whole}");
        assert_eq!(frame_len(two.as_bytes()), Some(whole.len()), "{whole:?}");
    }
}
