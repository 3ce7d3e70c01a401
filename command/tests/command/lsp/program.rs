//! The program that the tests open.

/// Where the editor has it.
pub const URI: &str = "file:///t/step.trace";

/// A region, a body, a view inside a line, a run, names below scopes; bytes and columns differ.
pub const PROGRAM: &str = r#"# fulgurite trace 2
trace step for cpu (params.ln.weight: f32[8] parameter donated, .bias: f32[8] parameter, "größe 🔥": f32[8], x: f32[2, 4]) {
  exp = exp("größe 🔥") by cpu
    refused by mine: "takes `bf16`, input is f32"
  h.0.norm = softmax(exp, dim=-1) {
    amax: f32[] = amax(input, dims=[0])
    broadcast: f32[8] = broadcast_in_dim(amax, shape=[8], dims=[])
    sub = sub(input, broadcast)
    yield exp = exp(sub)
  }; del exp
  h.0.add = add(.norm, reshape(x, shape=[8]))
  return out = h.0.add
}
"#;
