//! HTML to blocks (`simhash/reading/html_blocks.py`, where it is described): the same tokens, by hand, over bytes.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::references::References;

type Map<K, V> = HashMap<K, V, RandomState>;

const END_TAG_REACH: usize = 32;
const ATTRIBUTE_CHARACTERS: usize = 256;
const METADATA_CHARACTERS: usize = 4096;
const TITLE_CHARACTERS: usize = 1000;
const MOST_BLOCKS: usize = 20_000;
const MOST_ELEMENTS: usize = 100_000;
const CELL: u32 = 8;

/// What a block-level name does; `Name` in Python.
#[derive(Clone, Copy)]
pub struct Name {
    pub number: u32,
    pub mask: u64,
    pub ended_as: u32,
    pub ends: u32,
    pub stops_at_table: bool,
    pub stops_at_cell: bool,
    pub skipped: bool,
}

#[derive(Clone, Copy)]
pub enum Role {
    Element(Name),
    Line,
    Rule,
    Metadata,
    Page,
    Raw,
    Script,
    Title,
    Shown,
}

impl Role {
    fn element(&self) -> Option<Name> {
        if let Self::Element(name) = self { Some(*name) } else { None }
    }
}

/// What holds all of a page; its number is the one behind those of the names.
const PAGE: Name =
    Name { number: 0, mask: 0, ended_as: 0, ends: 0, stops_at_table: false, stops_at_cell: false, skipped: false };

/// Names of up to sixteen letters, in lower case.
fn key_of(word: &[u8]) -> Option<u128> {
    if word.len() > 16 {
        return None;
    }
    let fold = |key, byte: &u8| key << 8 | u128::from(byte.to_ascii_lowercase());
    Some(word.iter().fold(0, fold))
}

/// What Python tells of names and of words in attributes.
pub struct Vocabulary {
    names: Map<u128, Role>,
    elements: Vec<Name>,
    words: Map<u128, u64>,
    pub references: References,
    table: u32,
    noscript: u32,
}

impl Vocabulary {
    pub fn new(
        names: &[(String, Role)],
        words: &[(String, u64)],
        references: References,
        table: u32,
    ) -> Self {
        let key = |word: &str| key_of(word.as_bytes());
        let mut elements: Vec<Name> = names.iter().filter_map(|(_, role)| role.element()).collect();
        let noscript = names.iter().find(|(name, _)| name == "noscript").and_then(|(_, role)| role.element());
        let noscript = noscript.map_or(u32::MAX, |name| name.number);
        elements.sort_by_key(|name| name.number);
        elements.push(Name { number: elements.len() as u32, ..PAGE });
        Self {
            elements,
            names: names.iter().filter_map(|(name, role)| Some((key(name)?, *role))).collect(),
            words: words.iter().filter_map(|(word, bits)| Some((key(word)?, *bits))).collect(),
            references,
            table,
            noscript,
        }
    }

    fn role(&self, name: &[u8]) -> Option<Role> {
        self.names.get(&key_of(name)?).copied()
    }
}

/// `Blocks` in Python.
#[derive(Default)]
pub struct Blocks {
    pub title: String,
    pub language: String,
    pub canonical: String,
    pub robots: String,
    pub text: String,
    pub texts: Vec<Range<usize>>,
    pub sizes: Vec<i64>,
    pub linked: Vec<i64>,
    pub links: Vec<i32>,
    pub owners: Vec<u32>,
    pub broken: Vec<bool>,
    pub parents: Vec<u32>,
    pub masks: Vec<u64>,
    pub keys: Vec<u32>,
    pub depths: Vec<i32>,
    pub starts: Vec<u32>,
    pub ends: Vec<u32>,
}

impl Blocks {
    pub fn is_large(&self) -> bool {
        self.texts.len() > MOST_BLOCKS || self.parents.len() >= MOST_ELEMENTS
    }
}

/// Characters and bytes.
fn size_of(text: &str) -> i64 {
    (text.len() + characters(text)) as i64
}

/// Counted in blocks that the compiler makes vectors of.
fn characters(text: &str) -> usize {
    let count = |bytes: &[u8]| bytes.iter().map(|&b| u8::from((b as i8) >= -0x40)).sum::<u8>();
    text.as_bytes().chunks(128).map(|chunk| usize::from(count(chunk))).sum()
}

#[derive(Clone, Copy)]
struct Open {
    element: u32,
    name: u32,
}

pub struct Reader<'a> {
    vocabulary: &'a Vocabulary,
    html: &'a str,
    bytes: &'a [u8],
    at: usize,
    blocks: Blocks,
    stack: Vec<Open>,
    skipping: usize,
    spans: usize,
    link: usize,
    raw: String,
    linked: String,
    links: i32,
    is_broken: bool,
    is_asked_for_metadata: bool,
    shows_noscript: bool,
    named: Map<&'a str, (u64, u32)>,
    wordings: Map<String, u32>,
    alike: Map<(u32, u32), u32>,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | 0x0C | b'\r' | b' ')
}

fn stops(byte: u8) -> bool {
    is_space(byte) || byte == b'/' || byte == b'>'
}

/// Where `needle` begins, at `from` or behind; the end without it.
fn find(bytes: &[u8], from: usize, needle: u8) -> usize {
    memchr::memchr(needle, &bytes[from..]).map_or(bytes.len(), |ahead| from + ahead)
}

fn starts_with(bytes: &[u8], at: usize, wanted: &[u8]) -> bool {
    bytes.len() >= at + wanted.len() && bytes[at..at + wanted.len()].eq_ignore_ascii_case(wanted)
}

/// Whether at `at` stand these bytes, in either case, and behind them what ends a tag's name.
fn is_tag(bytes: &[u8], at: usize, wanted: &[u8]) -> bool {
    starts_with(bytes, at, wanted) && bytes.get(at + wanted.len()).is_some_and(|&b| stops(b))
}

/// Where a script ends that begins at `at` (13.2.5.20 to 31).
fn end_of_script(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = find(bytes, at, b'<');
        if at == bytes.len() || is_tag(bytes, at, b"</script") {
            return at;
        }
        at = if starts_with(bytes, at, b"<!--") {
            end_of_escape(bytes, at + 2)
        } else {
            at + 1
        };
    }
}

/// The next `<` or `-->`, at `at` or behind; the end without.
fn next_mark(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match memchr::memchr2(b'<', b'-', &bytes[at..]) {
            None => return bytes.len(),
            Some(ahead) => at += ahead,
        }
        if bytes[at] == b'<' || bytes[at..].starts_with(b"-->") {
            return at;
        }
        at += 1;
    }
}

fn end_of_escape(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = next_mark(bytes, at);
        if at == bytes.len() || is_tag(bytes, at, b"</script") {
            return at;
        }
        if bytes[at] == b'-' {
            return at + 3;
        }
        if !is_tag(bytes, at, b"<script") {
            at += 1;
            continue;
        }
        at += 8;
        loop {
            at = next_mark(bytes, at);
            if at == bytes.len() || bytes[at] == b'-' {
                break;
            }
            if is_tag(bytes, at, b"</script") {
                at += 9;
                break;
            }
            at += 1;
        }
    }
}

/// Where the text of an element of this name ends.
fn end_of_raw(bytes: &[u8], mut at: usize, name: &[u8]) -> usize {
    loop {
        at = find(bytes, at, b'<');
        if at == bytes.len() || (bytes.get(at + 1) == Some(&b'/') && is_tag(bytes, at + 2, name)) {
            return at;
        }
        at += 1;
    }
}

/// Where a comment, or what counts as one, ends; `at` is that of the `<`.
fn end_of_comment(bytes: &[u8], at: usize) -> usize {
    if !bytes[at..].starts_with(b"<!--") {
        let end = find(bytes, at + 2, b'>');
        return (end + 1).min(bytes.len());
    }
    let mut at = at + 4;
    if bytes[at..].starts_with(b">") {
        return at + 1;
    }
    if bytes[at..].starts_with(b"->") {
        return at + 2;
    }
    loop {
        match memchr::memmem::find(&bytes[at..], b"--") {
            None => return bytes.len(),
            Some(ahead) => at += ahead,
        }
        match (bytes.get(at + 2), bytes.get(at + 3)) {
            (Some(b'>'), _) => return at + 3,
            (Some(b'!'), Some(b'>')) => return at + 4,
            _ => at += 1,
        }
    }
}

/// One attribute: its name and value, and where it ends; none before `>` and at the end.
fn attribute(bytes: &[u8], mut at: usize) -> Option<(Range<usize>, Range<usize>, usize)> {
    let skip = |mut at: usize, wanted: fn(u8) -> bool| {
        while at < bytes.len() && wanted(bytes[at]) {
            at += 1;
        }
        at
    };
    at = skip(at, |b| is_space(b) || b == b'/');
    if at == bytes.len() || bytes[at] == b'>' {
        return None;
    }
    let start = at;
    at = skip(at + 1, |b| !(stops(b) || b == b'='));
    let name = start..at;
    let equals = skip(at, is_space);
    if bytes.get(equals) != Some(&b'=') {
        return Some((name, at..at, at));
    }
    at = skip(equals + 1, is_space);
    if let Some(&quote @ (b'"' | b'\'')) = bytes.get(at) {
        let end = find(bytes, at + 1, quote);
        return Some((name, at + 1..end, (end + 1).min(bytes.len())));
    }
    let end = skip(at, |b| !(is_space(b) || b == b'>'));
    Some((name, at..end, end))
}

/// Where the last attribute ends of those that begin at `at`.
fn end_of_last(bytes: &[u8], mut at: usize) -> usize {
    while let Some((_, _, end)) = attribute(bytes, at) {
        at = end;
    }
    at
}

/// Where attributes that begin at `at` end: at the `>`, or at the end.
fn end_of_attributes(bytes: &[u8], at: usize) -> usize {
    let mut at = end_of_last(bytes, at);
    while at < bytes.len() && (is_space(bytes[at]) || bytes[at] == b'/') {
        at += 1;
    }
    at
}

/// Whether a tag with these attributes ends itself, as in `<title/>`: its last `/` belongs to no value.
fn ends_itself(attributes: &str) -> bool {
    let bytes = attributes.as_bytes();
    bytes[end_of_last(bytes, 0)..].ends_with(b"/")
}

/// The value of the first attribute of this name.
fn value_of<'a>(attributes: &'a str, wanted: &str) -> Option<&'a str> {
    let mut at = 0;
    while let Some((name, value, end)) = attribute(attributes.as_bytes(), at) {
        if attributes[name].eq_ignore_ascii_case(wanted) {
            return Some(&attributes[value]);
        }
        at = end;
    }
    None
}

/// Whether there is the attribute `hidden`.
fn is_hidden(attributes: &str) -> bool {
    value_of(head(attributes, METADATA_CHARACTERS), "hidden").is_some()
}

/// Whether a template's content is shown in the place of the element around it, as its shadow tree.
fn is_shadow(attributes: &str) -> bool {
    value_of(head(attributes, METADATA_CHARACTERS), "shadowrootmode")
        .is_some_and(|mode| ["open", "closed"].iter().any(|shown| mode.eq_ignore_ascii_case(shown)))
}

/// The first characters of a text.
fn head(text: &str, count: usize) -> &str {
    if text.len() <= count {
        return text;
    }
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

impl<'a> Reader<'a> {
    pub fn new(vocabulary: &'a Vocabulary, html: &'a str) -> Self {
        let mut reader = Self {
            vocabulary,
            html,
            bytes: html.as_bytes(),
            at: 0,
            blocks: Blocks { text: String::with_capacity(html.len() / 4), ..Blocks::default() },
            stack: Vec::new(),
            skipping: 0,
            spans: 0,
            link: 0,
            raw: String::new(),
            linked: String::new(),
            links: 0,
            is_broken: false,
            is_asked_for_metadata: false,
            shows_noscript: false,
            named: Map::default(),
            wordings: Map::default(),
            alike: Map::default(),
        };
        let page = vocabulary.elements[vocabulary.elements.len() - 1];
        reader.record(0, 0, page, "");
        reader.stack.push(Open { element: 0, name: page.number });
        reader
    }

    /// The page's blocks; where there are none, those of what it has for readers without scripts.
    pub fn read(self) -> Blocks {
        let (vocabulary, html) = (self.vocabulary, self.html);
        let (found, has_noscript) = self.once();
        if !found.texts.is_empty() || !has_noscript {
            return found;
        }
        Self { shows_noscript: true, ..Self::new(vocabulary, html) }.once().0
    }

    /// The blocks, and whether there was a <noscript>.
    fn once(mut self) -> (Blocks, bool) {
        while self.at < self.bytes.len() {
            let end = find(self.bytes, self.at, b'<');
            self.text(self.at..end);
            self.at = end;
            if end < self.bytes.len() {
                self.markup();
            }
        }
        self.flush();
        while self.stack.len() > 1 {
            self.pop();
        }
        self.blocks.ends[0] = self.blocks.texts.len() as u32;
        let has_noscript = self.alike.keys().any(|(name, _)| *name == self.vocabulary.noscript);
        (self.blocks, has_noscript)
    }

    /// What the page says of itself, but for its title: the same tags, and nothing is made of what is between them.
    pub fn metadata_alone(mut self) -> Blocks {
        self.is_asked_for_metadata = true;
        self.skipping = usize::MAX;
        self.once().0
    }

    fn text(&mut self, part: Range<usize>) {
        if self.skipping > 0 {
            return;
        }
        let text = &self.html[part];
        self.raw.push_str(text);
        if self.link > 0 {
            self.linked.push_str(text);
        }
    }

    /// What begins with the `<` here.
    fn markup(&mut self) {
        match (self.bytes.get(self.at + 1), self.bytes.get(self.at + 2)) {
            (Some(b'/'), Some(letter)) if letter.is_ascii_alphabetic() => self.tag(true),
            (Some(letter), _) if letter.is_ascii_alphabetic() => self.tag(false),
            (Some(b'!' | b'?' | b'/'), _) => self.at = end_of_comment(self.bytes, self.at),
            _ => {
                self.text(self.at..self.at + 1);
                self.at += 1;
            }
        }
    }

    fn tag(&mut self, is_end: bool) {
        let start = self.at + 1 + usize::from(is_end);
        let mut end = start;
        while end < self.bytes.len() && !stops(self.bytes[end]) {
            end += 1;
        }
        let name = &self.bytes[start..end];
        let close = end_of_attributes(self.bytes, end);
        let attributes = &self.html[end..close];
        let is_closed = close < self.bytes.len() && attributes.ends_with('/');
        self.at = (close + 1).min(self.bytes.len());
        if let b"a" | b"A" = name {
            if end < self.bytes.len() {
                self.anchor(is_end, attributes);
            }
            return;
        }
        if name.eq_ignore_ascii_case(b"span") {
            if end < self.bytes.len() {
                self.span(is_end, attributes);
            }
            return;
        }
        let role = if end < self.bytes.len() { self.vocabulary.role(name) } else { None };
        match role {
            None => {}
            Some(Role::Element(_)) if self.is_asked_for_metadata => {}
            Some(Role::Element(name)) => {
                self.flush();
                if is_end {
                    self.end(name);
                } else if !(is_closed && self.bytes[start..end].eq_ignore_ascii_case(b"svg") && ends_itself(attributes)) {
                    self.start(name, attributes);
                }
            }
            Some(Role::Line) => {
                self.flush();
                self.is_broken = true;
            }
            Some(_) if is_end => {}
            Some(Role::Rule) => self.flush(),
            Some(Role::Page) => {
                self.flush();
                self.metadata(name, attributes);
            }
            Some(Role::Metadata) => self.metadata(name, attributes),
            Some(role) => self.raw_element(role, name, is_closed && ends_itself(attributes)),
        }
    }

    fn anchor(&mut self, is_end: bool, attributes: &str) {
        if self.skipping > 0 {
            return;
        }
        if is_end {
            self.link = 0;
        } else if attributes.as_bytes().windows(4).any(|w| w.eq_ignore_ascii_case(b"href")) {
            self.links += 1;
            self.link = self.stack.len();
        }
    }

    fn span(&mut self, is_end: bool, attributes: &str) {
        if self.spans > 0 {
            self.spans = if is_end { self.spans - 1 } else { self.spans + 1 };
            if self.spans == 0 {
                self.skipping = 0;
            }
        } else if self.skipping == 0 && !is_end && is_hidden(attributes) {
            self.spans = 1;
            self.skipping = self.stack.len();
        }
    }

    /// An element without inner markup. One that ends itself has no text, as in SVG and XHTML.
    fn raw_element(&mut self, role: Role, name: &[u8], ends_itself: bool) {
        let start = self.at;
        self.at = match role {
            _ if ends_itself => start,
            Role::Script => end_of_script(self.bytes, start),
            _ => end_of_raw(self.bytes, start, name),
        };
        let text = &self.html[start..self.at];
        match role {
            Role::Title if self.blocks.title.is_empty() && (self.spans > 0 || self.skipping == 0) => {
                let mut title = String::new();
                self.vocabulary.references.plain(head(text, METADATA_CHARACTERS), &mut title);
                self.blocks.title = head(&title, TITLE_CHARACTERS).to_owned();
            }
            Role::Shown => {
                self.flush();
                if self.skipping == 0 {
                    let start = self.blocks.text.len();
                    References::collapse(text, &mut self.blocks.text);
                    self.add(start, 0, 0, false);
                }
            }
            _ => {}
        }
    }

    fn metadata(&mut self, name: &[u8], attributes: &str) {
        let attributes = head(attributes, METADATA_CHARACTERS);
        let value = |wanted: &str| value_of(attributes, wanted);
        let is = |attribute: &str, wanted: &str| {
            value(attribute).is_some_and(|v| v.split_ascii_whitespace().any(|w| w.eq_ignore_ascii_case(wanted)))
        };
        let (slot, value) = match name.to_ascii_lowercase().as_slice() {
            b"html" => (&mut self.blocks.language, value("lang")),
            b"link" if is("rel", "canonical") => (&mut self.blocks.canonical, value("href")),
            b"meta" if is("name", "robots") => (&mut self.blocks.robots, value("content")),
            _ => return,
        };
        if let (true, Some(value)) = (slot.is_empty(), value) {
            self.vocabulary.references.plain_value(value, slot);
        }
    }

    /// The text up to here becomes a block.
    fn flush(&mut self) {
        let broken = std::mem::take(&mut self.is_broken);
        let links = std::mem::take(&mut self.links);
        if self.raw.bytes().all(is_space) {
            self.raw.clear();
            self.linked.clear();
            return;
        }
        let start = self.blocks.text.len();
        self.vocabulary.references.plain(&self.raw, &mut self.blocks.text);
        let is_whole = self.linked.len() == self.raw.len();
        self.raw.clear();
        let linked = if is_whole {
            size_of(&self.blocks.text[start..])
        } else if self.linked.is_empty() {
            0
        } else {
            let mut linked = String::new();
            self.vocabulary.references.plain(&self.linked, &mut linked);
            size_of(&linked)
        };
        self.linked.clear();
        self.add(start, linked, links, broken);
    }

    /// A block of the text that begins at `start`, if there is any.
    fn add(&mut self, start: usize, linked: i64, links: i32, broken: bool) {
        let blocks = &mut self.blocks;
        let text = start..blocks.text.len();
        if text.is_empty() {
            return;
        }
        if blocks.texts.len() < MOST_BLOCKS {
            blocks.sizes.push(size_of(&blocks.text[text.clone()]));
            blocks.linked.push(linked);
            blocks.links.push(links);
            blocks.owners.push(self.stack[self.stack.len() - 1].element);
            blocks.broken.push(broken);
        }
        if blocks.texts.len() <= MOST_BLOCKS {
            blocks.texts.push(text);
        }
        blocks.text.push('\n');
    }

    /// What the last of the open elements does, or the one so many places before.
    fn innermost(&self, back: usize) -> Name {
        self.vocabulary.elements[self.stack[self.stack.len() - back].name as usize]
    }

    fn start(&mut self, name: Name, attributes: &'a str) {
        while self.stack.len() > 1 && self.innermost(1).ended_as & name.ends != 0 {
            self.pop();
        }
        let parent = self.stack[self.stack.len() - 1].element;
        let mut element = 0;
        if self.blocks.parents.len() < MOST_ELEMENTS {
            element = self.blocks.parents.len() as u32;
            self.record(parent, self.stack.len() as i32, name, attributes);
        }
        self.stack.push(Open { element, name: name.number });
        let is_shown = self.shows_noscript && name.number == self.vocabulary.noscript;
        if name.skipped && self.skipping == 0 && !is_shown && !is_shadow(attributes) {
            self.skipping = self.stack.len();
        }
    }

    fn record(&mut self, parent: u32, depth: i32, name: Name, attributes: &'a str) {
        let (mask, wording) = self.words(attributes);
        let count = self.alike.len() as u32;
        let key = *self.alike.entry((name.number, wording)).or_insert(count);
        let blocks = &mut self.blocks;
        blocks.parents.push(parent);
        blocks.masks.push(mask | name.mask);
        blocks.keys.push(key);
        blocks.depths.push(depth);
        blocks.starts.push(blocks.texts.len() as u32);
        blocks.ends.push(0);
    }

    /// The bits of an element's words, and a number for all of them together.
    fn words(&mut self, attributes: &'a str) -> (u64, u32) {
        if let Some(&known) = self.named.get(attributes) {
            return known;
        }
        let bytes = head(attributes, ATTRIBUTE_CHARACTERS).as_bytes();
        let (mut mask, mut wording, mut at) = (0, String::new(), 0);
        while at < bytes.len() {
            let start = at;
            at += 1;
            if !bytes[start].is_ascii_alphabetic() {
                continue;
            }
            while at < bytes.len() && bytes[at].is_ascii_lowercase() {
                at += 1;
            }
            if at < start + 2 {
                continue;
            }
            let word = &bytes[start..at];
            mask |= key_of(word).and_then(|key| self.vocabulary.words.get(&key)).copied().unwrap_or(0);
            wording.extend(word.iter().map(|&b| char::from(b)));
            wording.push(' ');
        }
        let count = self.wordings.len() as u32;
        let number = *self.wordings.entry(wording).or_insert(count);
        self.named.insert(attributes, (mask, number));
        (mask, number)
    }

    fn end(&mut self, name: Name) {
        let open = self.stack.len();
        for back in 1..=END_TAG_REACH.min(open - 1) {
            let top = self.innermost(back);
            if top.number == name.number {
                (0..back).for_each(|_| self.pop());
                return;
            }
            if (name.stops_at_cell && top.ended_as & CELL != 0)
                || (name.stops_at_table && top.number == self.vocabulary.table)
            {
                return;
            }
        }
    }

    fn pop(&mut self) {
        if let Some(open) = self.stack.pop() {
            self.blocks.ends[open.element as usize] = self.blocks.texts.len() as u32;
        }
        if self.stack.len() < self.skipping {
            self.skipping = 0;
            self.spans = 0;
        }
        if self.stack.len() < self.link {
            self.link = 0;
        }
    }
}
