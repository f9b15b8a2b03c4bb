//! Pure: the largest size of a value in an expression, before its evaluation.

use serde_json::Value;

/// Assumed elements of a list, and values of an object, for an unknown request.
const ASSUMED_LENGTH: u64 = 100;
const ASSUMED_VALUES: u64 = 1_000;

/// Assumed bytes of text for each of them.
const ASSUMED_BYTES: u64 = 10;

/// Assumed bytes of one text.
const ASSUMED_TEXT: u64 = 1_000;

/// Bytes of text that have the weight of one value.
pub(super) const TEXT: u64 = 10;

/// Most digits of a number.
const DIGITS: u64 = 64;

/// The largest size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Elements of a list, entries of a map, or bytes of a text.
    pub(super) length: u64,
    /// Number of values in it, including itself.
    pub(super) values: u64,
    /// Bytes of all texts in it.
    pub(super) bytes: u64,
}

impl Size {
    /// Returns the size of a value.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::scalar(),
            Value::String(text) => Self::text(text.len() as u64),
            Value::Array(items) => Self::list(items.iter().map(Self::of)),
            Value::Object(fields) => Self {
                length: fields.len() as u64,
                ..Self::list(
                    fields
                        .iter()
                        .flat_map(|(key, value)| [Self::text(key.len() as u64), Self::of(value)]),
                )
            },
        }
    }

    /// Returns the cost of copying it, or of comparing it with a value of the same size.
    pub(super) fn weight(self) -> u64 {
        self.values.saturating_add(self.bytes / TEXT)
    }

    fn scalar() -> Self {
        Self {
            length: 0,
            values: 1,
            bytes: 0,
        }
    }

    fn text(bytes: u64) -> Self {
        Self {
            length: bytes,
            values: 1,
            bytes,
        }
    }

    fn list(parts: impl Iterator<Item = Self>) -> Self {
        let mut length = 0;
        let parts = parts.inspect(|_| length += 1);
        let sum = parts.fold(Self::scalar(), Self::plus);
        Self { length, ..sum }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            length: self.length.saturating_add(other.length),
            values: self.values.saturating_add(other.values),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn times(self, times: u64) -> Self {
        Self {
            length: self.length.saturating_mul(times),
            values: self.values.saturating_mul(times),
            bytes: self.bytes.saturating_mul(times),
        }
    }

    fn most(self, other: Self) -> Self {
        Self {
            length: self.length.max(other.length),
            values: self.values.max(other.values),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// The shape of a value.
#[derive(Clone, Debug)]
pub(super) enum Shape<'a> {
    /// One of these values.
    Given(Vec<&'a Value>),
    /// An unknown value of the request, with the assumed number of values.
    Assumed(u64),
    /// A computed value of at most this size, with the shape of its elements.
    Made(Size, Option<Box<Shape<'a>>>),
}

impl<'a> Shape<'a> {
    /// This value.
    pub(super) fn given(value: &'a Value) -> Self {
        Self::Given(vec![value])
    }

    /// An unknown value of the request.
    pub(super) fn assumed() -> Self {
        Self::Assumed(ASSUMED_VALUES)
    }

    /// A number or a truth value.
    pub(super) fn scalar() -> Self {
        Self::Made(Size::scalar(), None)
    }

    /// A text of this length, in bytes.
    pub(super) fn text(bytes: u64) -> Self {
        Self::Made(Size::text(bytes), None)
    }

    /// A list or map of these.
    pub(super) fn list(parts: Vec<Self>) -> Self {
        let size = Size::list(parts.iter().map(Self::size));
        let element = parts.into_iter().reduce(Self::either);
        Self::Made(size, element.map(Box::new))
    }

    /// The result of a function of values with these sizes.
    pub(super) fn of_result(sizes: impl Iterator<Item = Size>) -> Self {
        Self::Made(sizes.fold(Size::text(DIGITS), Size::plus), None)
    }

    /// One of two shapes.
    pub(super) fn either(one: Self, other: Self) -> Self {
        match (one, other) {
            (Self::Given(mut values), Self::Given(others)) => {
                values.extend(others);
                Self::Given(distinct(values))
            }
            (Self::Assumed(one), Self::Assumed(other)) => Self::Assumed(one.max(other)),
            (one, other) => {
                let size = one.size().most(other.size());
                Self::Made(size, element_of_either(&one, &other))
            }
        }
    }

    /// The concatenation of two shapes.
    pub(super) fn joined(one: &Self, other: &Self) -> Self {
        let size = one.size().plus(other.size());
        Self::Made(size, element_of_either(one, other))
    }

    /// The concatenation of `times` copies.
    pub(super) fn repeated(self, times: u64) -> Self {
        Self::Made(self.size().times(times), self.parts().known())
    }

    /// Returns the largest size.
    pub(super) fn size(&self) -> Size {
        match self {
            Self::Given(values) => {
                let sizes = values.iter().map(|value| Size::of(value));
                sizes.fold(Size::default(), Size::most)
            }
            Self::Assumed(values) => Size {
                length: (*values).min(ASSUMED_LENGTH),
                values: *values,
                bytes: values.saturating_mul(ASSUMED_BYTES),
            },
            Self::Made(size, _) => *size,
        }
    }

    /// Returns the largest length, if it is a text.
    pub(super) fn text_bytes(&self) -> u64 {
        match self {
            Self::Given(_) => {
                let texts = self.texts().into_iter().flatten();
                texts
                    .map(|text| text.len() as u64)
                    .max()
                    .unwrap_or_default()
            }
            Self::Assumed(_) => self.size().bytes.min(ASSUMED_TEXT),
            Self::Made(size, None) => size.bytes,
            Self::Made(_, Some(_)) => 0,
        }
    }

    /// Returns the possible texts, if they are known.
    pub(super) fn texts(&self) -> Option<impl Iterator<Item = &'a str>> {
        match self {
            Self::Given(values) => Some(values.iter().filter_map(|value| value.as_str())),
            Self::Assumed(_) | Self::Made(..) => None,
        }
    }

    /// Returns the shape of a field.
    pub(super) fn field(&self, name: &str) -> Self {
        match self {
            Self::Given(values) => {
                Self::Given(values.iter().filter_map(|value| value.get(name)).collect())
            }
            Self::Assumed(values) => Self::Assumed(*values),
            Self::Made(..) => self.element(),
        }
    }

    /// Returns the shape of an element of a list, or of the value of a map entry.
    pub(super) fn element(&self) -> Self {
        match self {
            Self::Given(values) => {
                Self::Given(values.iter().flat_map(|one| children(one)).collect())
            }
            Self::Assumed(values) => Self::Assumed((values / ASSUMED_LENGTH).max(1)),
            Self::Made(_, Some(element)) => (**element).clone(),
            Self::Made(size, None) => Self::Made(*size, None),
        }
    }

    /// Returns the shape of the loop variable: the elements of a list, or the keys of a map.
    pub(super) fn iterated(&self) -> Self {
        let Self::Given(values) = self else {
            return self.element();
        };
        let maps = values.iter().filter_map(|value| value.as_object());
        let longest = maps.flat_map(|map| map.keys().map(String::len)).max();
        let lists = values.iter().filter_map(|value| value.as_array());
        let elements = Self::Given(lists.flatten().collect());
        match longest {
            Some(longest) => Self::either(Self::text(longest as u64), elements),
            None => elements,
        }
    }

    /// Returns the cost of a search in it. A map finds a key in constant time.
    pub(super) fn search(&self) -> u64 {
        let Self::Given(values) = self else {
            return self.size().weight();
        };
        let lists = values.iter().filter(|value| !value.is_object());
        let weights = lists.map(|value| Size::of(value).weight());
        weights.max().unwrap_or(1)
    }

    fn parts(&self) -> Parts<'a> {
        match self {
            Self::Given(values) if values.is_empty() => Parts::None,
            Self::Made(size, None) if size.length == 0 => Parts::None,
            Self::Made(_, None) => Parts::Unknown,
            Self::Made(_, Some(element)) => Parts::Like(element.clone()),
            other => Parts::Like(Box::new(other.element())),
        }
    }
}

/// The elements of a value.
enum Parts<'a> {
    /// There are none.
    None,
    /// Their shape is unknown.
    Unknown,
    /// Their shape.
    Like(Box<Shape<'a>>),
}

impl<'a> Parts<'a> {
    fn known(self) -> Option<Box<Shape<'a>>> {
        match self {
            Self::Like(element) => Some(element),
            Self::None | Self::Unknown => None,
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn element_of_either<'a>(one: &Shape<'a>, other: &Shape<'a>) -> Option<Box<Shape<'a>>> {
    let parts = match (one.parts(), other.parts()) {
        (Parts::None, parts) | (parts, Parts::None) => parts,
        (Parts::Unknown, _) | (_, Parts::Unknown) => Parts::Unknown,
        (Parts::Like(one), Parts::Like(other)) => {
            Parts::Like(Box::new(Shape::either(*one, *other)))
        }
    };
    parts.known()
}

/// Removes duplicate values.
fn distinct(mut values: Vec<&Value>) -> Vec<&Value> {
    values.sort_by_key(|value| std::ptr::from_ref::<Value>(value));
    values.dedup_by(|one, other| std::ptr::eq(*one, *other));
    values
}
