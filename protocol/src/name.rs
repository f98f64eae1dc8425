//! Names of files in JSON: a string, or an array of bytes where a name is not UTF-8, which serde refuses by itself.
//!
//! For `#[serde(with = "protocol::name")]`, in `Option`s [`option`], in collections [`all`].

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Name<'a> {
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

impl<'a> Name<'a> {
    fn of(path: &'a Path) -> Name<'a> {
        path.to_str().map_or(Name::Bytes(path.as_os_str().as_bytes().into()), |text| Name::Text(text.into()))
    }

    fn path(self) -> PathBuf {
        match self {
            Name::Text(text) => text.into_owned().into(),
            Name::Bytes(bytes) => OsStr::from_bytes(&bytes).into(),
        }
    }
}

/// # Errors
/// Those of the format.
pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    Name::of(path).serialize(to)
}

/// # Errors
/// Those of the format.
pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<PathBuf, D::Error> {
    Name::deserialize(from).map(Name::path)
}

/// Names that may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, Name, PathBuf, Serialize, Serializer};

    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Name::of).serialize(to)
    }

    /// # Errors
    /// Those of the format.
    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Name>::deserialize(from)?.map(Name::path))
    }
}

/// Several names.
pub mod all {
    use super::{Deserialize, Deserializer, Name, PathBuf, Serializer};

    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer, C>(paths: &C, to: S) -> Result<S::Ok, S::Error>
    where
        for<'c> &'c C: IntoIterator<Item = &'c PathBuf>,
    {
        to.collect_seq(paths.into_iter().map(|path| Name::of(path)))
    }

    /// # Errors
    /// Those of the format.
    pub fn deserialize<'a, D: Deserializer<'a>, C: FromIterator<PathBuf>>(from: D) -> Result<C, D::Error> {
        Ok(Vec::<Name>::deserialize(from)?.into_iter().map(Name::path).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Names {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(default, with = "super::option")]
        other: Option<PathBuf>,
        #[serde(with = "super::all")]
        more: BTreeSet<PathBuf>,
    }

    #[test]
    fn any_name_comes_back_and_text_stays_text() {
        let latin = PathBuf::from(OsStr::from_bytes(b"/data/caf\xe9"));
        let more = BTreeSet::from([latin.clone(), "/data/é".into()]);
        let names = Names { one: latin.clone(), other: Some(latin), more };
        let text = serde_json::to_string(&names).unwrap();
        assert_eq!(serde_json::from_str::<Names>(&text).unwrap(), names);
        let plain = r#"{"one":"/a \"b\"","other":null,"more":["/c"]}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Names>(plain).unwrap()).unwrap(), plain);
    }
}
