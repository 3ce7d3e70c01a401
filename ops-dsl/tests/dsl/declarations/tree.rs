#[derive(Tree)]
pub struct Model<T> {
    embedding: T,
    h: Vec<Block<T>>,
    pairs: Vec<(T, Option<T>)>,
    head: Option<Linear<T>>,
    #[tree(attribute)]
    heads: usize,
}
