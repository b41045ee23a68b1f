//! Platforms as Compose files ask for them and as images have them. Pure.
//!
//! **Source**: containerd, `platforms.Parse`: `os/arch[/variant]`, or one of the two alone.

/// The parts of a platform; an empty one is not known or not asked for.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    os: String,
    arch: String,
    variant: String,
}

/// Operating systems that may stand alone; any other single word is an architecture.
const SYSTEMS: [&str; 5] = ["linux", "windows", "darwin", "freebsd", "wasi"];

fn parts_of(text: &str) -> Parts {
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split('/').collect();
    let (os, arch, variant) = match words.as_slice() {
        [os] if SYSTEMS.contains(os) => (*os, "", ""),
        [arch] => ("", *arch, ""),
        [os, arch] => (*os, *arch, ""),
        [os, arch, variant, ..] => (*os, *arch, *variant),
        [] => ("", "", ""),
    };
    let (arch, variant) = match (arch, variant) {
        ("x86_64" | "x86-64" | "amd64", "v1") | ("x86_64" | "x86-64", "") => ("amd64", ""),
        ("x86_64" | "x86-64", variant) => ("amd64", variant),
        ("aarch64" | "arm64", "v8" | "8") | ("aarch64", "") => ("arm64", ""),
        ("i386" | "i486" | "i586" | "i686", _) => ("386", ""),
        ("armhf", _) => ("arm", "v7"),
        ("armel", _) => ("arm", "v6"),
        other => other,
    };
    Parts {
        os: os.to_owned(),
        arch: arch.to_owned(),
        variant: variant.to_owned(),
    }
}

/// Whether an image of one platform is what was asked for; what is not known fits.
pub(super) fn fits(asked: Option<&str>, held: &str) -> bool {
    let Some(asked) = asked else { return true };
    let (asked, held) = (parts_of(asked), parts_of(held));
    let agree = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
    agree(&asked.os, &held.os)
        && agree(&asked.arch, &held.arch)
        && agree(&asked.variant, &held.variant)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn platforms_fit_by_what_both_sides_say() {
        for (asked, held, expected) in [
            ("linux/amd64", "linux/amd64", true),
            ("linux/x86_64", "linux/amd64", true),
            ("amd64", "linux/amd64", true),
            ("linux", "linux/arm64", true),
            ("linux/arm64", "linux/amd64", false),
            ("linux/arm64/v8", "linux/arm64", true),
            ("aarch64", "linux/arm64/v8", true),
            ("linux/arm/v7", "linux/arm/v6", false),
            ("linux/arm/v7", "linux/arm", true),
            ("armhf", "linux/arm/v7", true),
            ("Linux/AMD64", "linux/amd64", true),
            ("windows/amd64", "linux/amd64", false),
            ("i386", "linux/386", true),
            ("linux/amd64", "", true),
        ] {
            assert_eq!(fits(Some(asked), held), expected, "{asked}, {held}");
        }
        assert!(fits(None, "linux/riscv64"));
    }
}
