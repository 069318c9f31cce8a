//! Names files whose content should not reach a model, and files that steer git.
//!
//! Pure: judges a relative path by its spelling. What follows from it is for policies to say.

/// Names of files that hold secrets wherever they lie.
const NAMES: &[&str] = &[
    ".dockercfg",
    ".git-credentials",
    ".htpasswd",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "_netrc",
    "credentials.json",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "kubeconfig",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "service-account.json",
];

/// Endings of files that hold keys.
const ENDINGS: &[&str] =
    &[".gpg", ".jks", ".kdbx", ".key", ".keystore", ".p12", ".p8", ".pem", ".pfx", ".ppk", ".pkcs12"];

/// Ends of paths whose file name alone says too little.
const PATHS: &[&str] = &[
    ".aws/config",
    ".aws/credentials",
    ".azure/accesstokens.json",
    ".azure/msal_token_cache.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gh/hosts.yml",
    ".config/gcloud/application_default_credentials.json",
    ".config/gcloud/credentials.db",
    ".docker/config.json",
    ".gem/credentials",
    ".kube/config",
];

/// Folders that hold nothing else.
const FOLDERS: &[&str] = &[".gnupg", ".ssh"];

/// How a tool that looks at many files treats the sensitive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitive {
    /// Reads them like others.
    Include,
    /// Leaves them out and says how many.
    Skip,
}

/// Whether the file at `relative` is likely to hold a password, a key or a token.
pub fn is_sensitive(relative: &str) -> bool {
    let path = relative.to_ascii_lowercase();
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
    name.starts_with(".env")
        || NAMES.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || PATHS.iter().any(|end| ends_with_parts(&path, end))
        || folder.split('/').any(|part| FOLDERS.contains(&part))
}

/// Whether `relative` is, or lies in, git's own folder, where a write can change what git runs.
pub fn is_git_internal(relative: &str) -> bool {
    relative.split('/').any(|part| part.eq_ignore_ascii_case(".git"))
}

fn ends_with_parts(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_secrets_are_sensitive_wherever_they_lie() {
        for path in [
            ".env",
            ".env.production",
            "app/.envrc",
            ".ENV",
            "id_rsa",
            "deploy/id_ed25519",
            "tls/server.pem",
            "a.KEY",
            "store.p12",
            ".netrc",
            "web/.npmrc",
            ".aws/credentials",
            "home/.aws/credentials",
            ".ssh/known_hosts",
            "home/.ssh/config",
            ".docker/config.json",
            ".kube/config",
            ".git-credentials",
        ] {
            assert!(is_sensitive(path), "{path}");
        }
    }

    #[test]
    fn files_that_only_look_alike_are_not_sensitive() {
        for path in [
            "env",
            "src/environment.rs",
            "my.env.rs",
            "id_rsa.pub",
            "keys.rs",
            "monkey",
            "pem.md",
            "x.aws/credentials",
            "credentials",
            "config.json",
            "ssh/readme",
            "docs/key",
        ] {
            assert!(!is_sensitive(path), "{path}");
        }
    }

    #[test]
    fn git_owns_its_folder_but_not_the_files_that_configure_it() {
        for path in [".git", ".git/hooks/pre-commit", "vendor/x/.git/config", ".GIT/config"] {
            assert!(is_git_internal(path), "{path}");
        }
        for path in [".gitignore", ".github/workflows/ci.yml", "src/git.rs", "a.git/config"] {
            assert!(!is_git_internal(path), "{path}");
        }
    }
}
