//! What `#[from_row(…)]` may say on a struct and on a field, and how a field's name becomes a column's.

use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, Ident, LitStr, Path, Result};

/// What is said on the struct.
#[derive(Default)]
pub(crate) struct StructAttributes {
    /// Where the driver is.
    pub(crate) krate: Option<Path>,
    pub(crate) rename_all: Option<Case>,
}

impl StructAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut said = Self::default();
        each(attributes, |meta| {
            if meta.path.is_ident("crate") {
                let path = meta.value()?.parse::<LitStr>()?;
                set(&mut said.krate, path.parse_with(Path::parse_mod_style)?, meta)
            } else if meta.path.is_ident("rename_all") {
                let name = meta.value()?.parse::<LitStr>()?;
                set(&mut said.rename_all, Case::parse(&name)?, meta)
            } else {
                Err(meta
                    .error("unknown attribute; a struct may have `rename_all = \"…\"` and `crate = \"…\"`"))
            }
        })?;
        Ok(said)
    }
}

/// What is said on one field.
#[derive(Default)]
pub(crate) struct FieldAttributes {
    pub(crate) rename: Option<LitStr>,
    pub(crate) skip: bool,
}

impl FieldAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut said = Self::default();
        let mut skip = None;
        each(attributes, |meta| {
            if meta.path.is_ident("rename") {
                let name = meta.value()?.parse::<LitStr>()?;
                if name.value().is_empty() {
                    return Err(Error::new(name.span(), "a column's name is not empty"));
                }
                set(&mut said.rename, name, meta)
            } else if meta.path.is_ident("skip") {
                set(&mut skip, (), meta)
            } else {
                Err(meta.error("unknown attribute; a field may have `rename = \"…\"` or `skip`"))
            }
        })?;
        said.skip = skip.is_some();
        match &said.rename {
            Some(name) if said.skip => Err(Error::new(
                name.span(),
                "a skipped field has no column to rename: remove `rename` or `skip`",
            )),
            _ => Ok(said),
        }
    }
}

fn each(attributes: &[Attribute], mut read: impl FnMut(&ParseNestedMeta<'_>) -> Result<()>) -> Result<()> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("from_row"))
        .try_for_each(|attribute| attribute.parse_nested_meta(|meta| read(&meta)))
}

fn set<T>(place: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(meta.error("this attribute is given twice")),
    }
}

/// How column names are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Lower,
    Upper,
    Camel,
    Pascal,
    Snake,
    ScreamingSnake,
    Kebab,
}

impl Case {
    /// Every style under the name that serde gives it.
    const ALL: [(&'static str, Self); 7] = [
        ("lowercase", Self::Lower),
        ("UPPERCASE", Self::Upper),
        ("camelCase", Self::Camel),
        ("PascalCase", Self::Pascal),
        ("snake_case", Self::Snake),
        ("SCREAMING_SNAKE_CASE", Self::ScreamingSnake),
        ("kebab-case", Self::Kebab),
    ];

    fn parse(name: &LitStr) -> Result<Self> {
        let wanted = name.value();
        if let Some((_, case)) = Self::ALL.iter().find(|(known, _)| *known == wanted) {
            return Ok(*case);
        }
        let known = Self::ALL.map(|(known, _)| format!("\"{known}\"")).join(", ");
        Err(Error::new(name.span(), format!("unknown style of names; the styles are {known}")))
    }

    /// The column of the field `name`, which is written in snake case as all fields are.
    fn apply(self, name: &str) -> String {
        let words = || name.split('_').filter(|word| !word.is_empty());
        match self {
            Self::Lower => words().collect::<String>().to_lowercase(),
            Self::Upper => words().collect::<String>().to_uppercase(),
            Self::Snake => name.to_lowercase(),
            Self::ScreamingSnake => name.to_uppercase(),
            Self::Kebab => words().collect::<Vec<_>>().join("-").to_lowercase(),
            Self::Pascal => words().map(capitalised).collect(),
            Self::Camel => {
                let mut words = words();
                let first = words.next().unwrap_or_default().to_lowercase();
                words.fold(first, |name, word| name + &capitalised(word))
            }
        }
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// The column that a named field stands for.
pub(crate) fn column_of(field: &Ident, said: &FieldAttributes, rename_all: Option<Case>) -> String {
    let name = field.unraw().to_string();
    match (&said.rename, rename_all) {
        (Some(column), _) => column.value(),
        (None, Some(case)) => case.apply(&name),
        (None, None) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::Case;

    #[test]
    fn every_style_of_names() {
        let styles = Case::ALL.map(|(_, case)| case.apply("random_number_2nd"));
        assert_eq!(
            styles,
            [
                "randomnumber2nd",
                "RANDOMNUMBER2ND",
                "randomNumber2nd",
                "RandomNumber2nd",
                "random_number_2nd",
                "RANDOM_NUMBER_2ND",
                "random-number-2nd",
            ]
        );
        assert_eq!(Case::Camel.apply("_id"), "id");
        assert_eq!(Case::Pascal.apply("über_id"), "ÜberId");
    }
}
