//! Source files, and the paths that they name.
//!
//! Reads Rust as tokens, so a name counts wherever it stands, in code that is compiled or not, and a comment never
//! does. What comes out of a macro is not seen.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it stands in the source, one for each leaf of a tree of uses.
#[derive(Debug)]
pub(super) struct Name {
    /// `file:line`.
    pub(super) place: String,
    /// Where it is named.
    pub(super) module: Vec<String>,
    pub(super) path: Vec<String>,
    pub(super) in_test: bool,
}

impl Name {
    /// The path below the crate; none if it leads elsewhere.
    pub(super) fn inside(&self) -> Option<&[String]> {
        self.path.strip_prefix(&["crate".to_owned()])
    }
}

/// Every path in `src`.
pub(super) fn names() -> Vec<Name> {
    let mut found = Vec::new();
    let mut test_modules = Vec::new();
    for file in files(&["src"]).into_iter().filter(|file| is_source(file)) {
        let below = file.strip_prefix(root().join("src")).unwrap().with_extension("");
        let parts: Vec<&str> = below.iter().map(|part| part.to_str().unwrap()).collect();
        let module = parts.strip_suffix(&["mod"]).or(parts.strip_suffix(&["lib"])).unwrap_or(&parts);
        let mut names = Names::new(&shown(&file), module);
        names.walk(read(&file).parse().unwrap(), false);
        found.append(&mut names.found);
        test_modules.append(&mut names.test_modules);
    }
    for name in &mut found {
        name.in_test |= test_modules.iter().any(|module| name.module.starts_with(module));
    }
    assert!(found.len() > 1_000, "the source tree was not found");
    found
}

/// Collects the paths of one file.
pub(super) struct Names {
    file: String,
    pub(super) module: Vec<String>,
    pub(super) found: Vec<Name>,
    /// Modules in files of their own that exist in tests only.
    test_modules: Vec<Vec<String>>,
}

impl Names {
    pub(super) fn new(file: &str, module: &[&str]) -> Self {
        let module = module.iter().map(|part| (*part).to_owned()).collect();
        Self { file: file.to_owned(), module, found: Vec::new(), test_modules: Vec::new() }
    }

    pub(super) fn walk(&mut self, tokens: TokenStream, in_test: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut item_in_test = in_test;
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at..] {
                [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] if hash.as_char() == '#' => {
                    item_in_test |= attribute.stream().to_string().replace(' ', "") == "cfg(test)";
                    at += 2;
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), rest, ..] if word == "mod" => {
                    self.module.push(name.to_string());
                    match rest {
                        TokenTree::Group(body) => self.walk(body.stream(), item_in_test),
                        TokenTree::Punct(_) if item_in_test => self.test_modules.push(self.module.clone()),
                        TokenTree::Punct(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => {}
                    }
                    self.module.pop();
                    item_in_test = in_test;
                    at += 3;
                }
                [TokenTree::Ident(_), ..] => at += self.path(&tokens[at..], &[], item_in_test),
                [TokenTree::Group(group), ..] => {
                    self.walk(group.stream(), item_in_test);
                    if group.delimiter() == Delimiter::Brace {
                        item_in_test = in_test;
                    }
                    at += 1;
                }
                [TokenTree::Punct(mark), ..] => {
                    if mark.as_char() == ';' {
                        item_in_test = in_test;
                    }
                    at += 1;
                }
                [TokenTree::Literal(_), ..] | [] => at += 1,
            }
        }
    }

    /// Takes in the path that `tokens` begin with, and says how many of them it is.
    fn path(&mut self, tokens: &[TokenTree], prefix: &[String], in_test: bool) -> usize {
        let mut path = prefix.to_vec();
        let mut at = 0;
        while let Some(TokenTree::Ident(part)) = tokens.get(at) {
            path.push(part.to_string());
            at += 1;
            let colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
            if !colon(tokens.get(at)) || !colon(tokens.get(at + 1)) {
                break;
            }
            at += 2;
            if let Some(TokenTree::Group(tree)) = tokens.get(at)
                && tree.delimiter() == Delimiter::Brace
            {
                let leaves: Vec<TokenTree> = tree.stream().into_iter().collect();
                for leaf in
                    leaves.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','))
                {
                    if !leaf.is_empty() {
                        self.path(leaf, &path, in_test);
                    }
                }
                return at + 1;
            }
        }
        let line = tokens[0].span().start().line;
        let place = format!("{}:{line}", self.file);
        let path = self.absolute(path);
        self.found.push(Name { place, module: self.module.clone(), path, in_test });
        at
    }

    /// `super::x` and `self::x` as `crate::..::x`; to the binary the library is `crate` too.
    fn absolute(&self, mut path: Vec<String>) -> Vec<String> {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let ups = path.iter().take_while(|part| *part == "super").count();
        let below = |base: &[String], rest: &[String]| [&["crate".to_owned()], base, rest].concat();
        match path[0].as_str() {
            "super" => below(&self.module[..self.module.len() - ups], &path[ups..]),
            "self" => below(&self.module, &path[1..]),
            "herder" if self.module == ["main"] => below(&[], &path[1..]),
            _ => path,
        }
    }
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below these folders of the top level.
pub(super) fn files(folders: &[&str]) -> Vec<PathBuf> {
    let mut todo: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

pub(super) fn is_source(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

pub(super) fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

pub(super) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
