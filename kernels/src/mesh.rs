//! The ranks that run one program, as a grid with named axes.

use std::fmt;
use std::str::FromStr;

/// An axis of a mesh: its name, and how many ranks are along it. Its text is `data=4`; collectives take it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Axis {
    name: String,
    extent: usize,
}

impl Axis {
    /// Its name: `data`, `shard`, `tensor`, or one of the author's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many ranks are along it: 1 to 65,535.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// The number of elements of each part of a tensor of this shape that is divided among the ranks: the last parts
    /// may end with padding.
    pub fn part_length(&self, shape: &[usize]) -> usize {
        // No tensor has more elements than can be counted, whatever shape is asked for.
        shape.iter().fold(1_usize, |elements, extent| elements.saturating_mul(*extent)).div_ceil(self.extent)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.extent)
    }
}

/// The text of the axis, which collectives take.
impl From<&Axis> for String {
    fn from(axis: &Axis) -> String {
        axis.to_string()
    }
}

impl FromStr for Axis {
    type Err = String;
    fn from_str(text: &str) -> Result<Axis, String> {
        let wrong = || {
            let most = u16::MAX;
            format!("'{text}' is not an axis of a mesh, expected a name and a number of ranks up to {most}: 'data=4'")
        };
        let (name, extent) = text.split_once('=').ok_or_else(wrong)?;
        let mut bytes = name.bytes();
        let begins = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let named = begins && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let number = extent.bytes().all(|b| b.is_ascii_digit()) && !extent.starts_with('0');
        match extent.parse::<u16>() {
            Ok(extent) if named && number => Ok(Axis { name: name.to_owned(), extent: usize::from(extent) }),
            _ => Err(wrong()),
        }
    }
}

/// The most ranks that a mesh may have.
const MOST_RANKS: usize = 1 << 20;

/// A grid of ranks. Each rank is a process with a device of its own, or a simulated one on the host
/// ([`crate::ranks`]), and runs the same program on its own data. Ranks are numbered in row-major order: the last axis
/// is that of neighbours. A mesh without axes is one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Mesh {
    axes: Vec<Axis>,
}

impl Mesh {
    /// One rank.
    pub const ONE: Mesh = Mesh { axes: Vec::new() };

    /// The axes, outermost first.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(Axis::extent).product()
    }

    /// The axis of this name and its place.
    pub fn axis(&self, name: &str) -> Option<(usize, &Axis)> {
        self.axes.iter().enumerate().find(|(_, axis)| axis.name == name)
    }

    /// The ranks that differ from `rank` along one axis alone, in the order of that axis; itself among them.
    pub fn group(&self, rank: usize, axis: usize) -> Vec<usize> {
        let stride: usize = self.axes[axis + 1..].iter().map(Axis::extent).product();
        let extent = self.axes[axis].extent;
        let first = rank - rank / stride % extent * stride;
        (0..extent).map(|place| first + place * stride).collect()
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, axis) in self.axes.iter().enumerate() {
            write!(f, "{}{axis}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Mesh {
    type Err = String;
    /// Axes with spaces between them: `data=2 tensor=4`.
    fn from_str(text: &str) -> Result<Mesh, String> {
        let mut mesh = Mesh::ONE;
        for axis in text.split_whitespace() {
            let axis: Axis = axis.parse()?;
            if mesh.axis(axis.name()).is_some() {
                return Err(format!("'{text}' has two axes of the name '{}'", axis.name()));
            }
            if mesh.ranks() * axis.extent > MOST_RANKS {
                return Err(format!("'{text}' has more than {MOST_RANKS} ranks"));
            }
            mesh.axes.push(axis);
        }
        Ok(mesh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_along_one_axis() {
        let mesh: Mesh = "data=2 tensor=3".parse().unwrap();
        assert_eq!((mesh.ranks(), mesh.to_string().as_str()), (6, "data=2 tensor=3"));
        assert_eq!(mesh.axis("tensor").map(|(place, axis)| (place, axis.extent())), Some((1, 3)));
        assert_eq!((mesh.group(4, 0), mesh.group(4, 1)), (vec![1, 4], vec![3, 4, 5]));
        assert_eq!((mesh.group(0, 0), mesh.group(2, 1)), (vec![0, 3], vec![0, 1, 2]));
        assert_eq!((Mesh::ONE.ranks(), "".parse()), (1, Ok(Mesh::ONE)));
    }

    #[test]
    fn what_is_no_mesh_is_refused() {
        for wrong in ["data", "data=", "data=0", "data=-1", "=2", "Data=2", "data=2x", "data = 2", "data=04", "2d=2"] {
            let message = wrong.parse::<Mesh>().unwrap_err();
            assert!(message.contains("is not an axis of a mesh"), "{wrong}: {message}");
        }
        assert!("a=2 a=3".parse::<Mesh>().unwrap_err().contains("two axes of the name 'a'"));
        assert!("a=65536".parse::<Mesh>().unwrap_err().contains("up to 65535"));
        assert!("a=65535 b=65535 c=65535".parse::<Mesh>().unwrap_err().contains("more than 1048576 ranks"));
    }
}
