//! Main text by extractors written in Rust, a pass over all pages at a time: `peers/main_text.py` of another language.
//!
//! The first line of standard input names a file of pages, one JSON string a line; answered by the extractors' names. Each
//! further line names one, and is answered by the texts and the processor seconds that they took. A page on which an
//! extractor fails or panics has an empty text.

use cpu_time::ProcessTime;
use serde_json::{json, Value};
use std::io::{stdin, BufRead};
use std::panic::catch_unwind;

type Extractor = fn(&str) -> Option<String>;

const EXTRACTORS: [(&str, Extractor); 2] = [
    ("dom_smoothie (Rust)", dom_smoothie),
    ("rs-trafilatura (Rust)", rs_trafilatura),
];

fn dom_smoothie(html: &str) -> Option<String> {
    let mut page = dom_smoothie::Readability::new(html, None, None).ok()?;
    Some(page.parse().ok()?.text_content.to_string())
}

fn rs_trafilatura(html: &str) -> Option<String> {
    Some(rs_trafilatura::extract(html).ok()?.content_text)
}

fn main() {
    std::panic::set_hook(Box::new(|_| ())); // an empty text says it
    let mut lines = stdin().lock().lines().map(|line| {
        serde_json::from_str::<Value>(&line.expect("a line")).expect("a JSON object")
    });
    let options = lines.next().expect("a first line");
    let pages = pages(options["pages"].as_str().expect("a file"));
    println!("{}", json!({"extractors": EXTRACTORS.map(|(name, _)| name)}));
    for question in lines {
        let named = EXTRACTORS.iter().find(|(name, _)| question["extractor"] == *name);
        let (_, extract) = named.expect("an extractor's name");
        let began = ProcessTime::now();
        let texts: Vec<String> = pages
            .iter()
            .map(|page| catch_unwind(|| extract(page)).ok().flatten().unwrap_or_default())
            .collect();
        println!("{}", json!({"seconds": began.elapsed().as_secs_f64(), "texts": texts}));
    }
}

fn pages(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a file of pages");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a JSON string"))
        .collect()
}
