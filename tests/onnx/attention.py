"""ONNX's Attention as calls: heads side by side, caches, masks, windows, and scores as results."""

import math

import numpy as np
from table import Dtype, call, node


def with_heads(x, heads):
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, width = x.shape
    parts = (yield call("reshape", input=x, shape=[batch, length, heads, width // heads]))[0]
    return (yield call("permute", input=parts, dims=[0, 2, 1, 3]))[0]


def seen(node, queries, keys, past, lengths):
    """Which keys a query sees by their positions, as [batch or 1, 1, queries, keys]; None where it sees all."""
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    causal = bool(node.get("is_causal", 0))
    if not causal and left < 0 and right < 0 and lengths is None:
        return None
    offsets = np.array([past]) if lengths is None else lengths - queries
    at = np.arange(queries)[None, :, None] + offsets[:, None, None]
    to = np.arange(keys)[None, None, :]
    allowed = np.ones((len(offsets), queries, keys), bool)
    if causal:
        allowed &= to <= at
    if left >= 0:
        allowed &= to >= at - left
    if right >= 0:
        allowed &= to <= at + right
    if lengths is not None:
        allowed &= to < lengths[:, None, None]
    return allowed[:, None]


@node("Attention")
def attention(node):
    q, k, v, mask, past_key, past_value, lengths = (node[i] for i in range(7))
    flat = q.ndim == 3
    if flat:
        q = yield from with_heads(q, node.get("q_num_heads"))
        k = yield from with_heads(k, node.get("kv_num_heads"))
        v = yield from with_heads(v, node.get("kv_num_heads"))
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k = (yield call("cat", tensors=[past_key, k], dim=2))[0]
        v = (yield call("cat", tensors=[past_value, v], dim=2))[0]
    keys, values = k, v
    allowed = seen(node, q.shape[2], k.shape[2], past, lengths)
    if mask is not None and mask.shape[-1] < k.shape[2]:
        # Keys that the mask has nothing of are not seen.
        low = False if mask.dtype == bool else -math.inf
        rest = (yield call("full", size=[*mask.shape[:-1], k.shape[2] - mask.shape[-1]], fill_value=low, dtype=Dtype(mask.dtype.name)))[0]
        mask = (yield call("cat", tensors=[mask, rest], dim=mask.ndim - 1))[0]
    if mask is not None and mask.dtype == bool and allowed is not None:
        allowed = (yield call("logical_and", input=mask, other=allowed))[0]
        mask = None
    elif mask is not None and mask.dtype == bool:
        allowed, mask = mask, None
    groups = q.shape[1] // k.shape[1]
    scale = node.get("scale") or 1.0 / math.sqrt(q.shape[-1])
    scores_wanted = len(node.outputs) > 3 or (len(node.outputs) == 2 and past_key is None)
    if groups > 1:
        k = (yield call("repeat_interleave", input=k, repeats=groups, dim=1))[0]
        v = (yield call("repeat_interleave", input=v, repeats=groups, dim=1))[0]
    if not scores_wanted and not node.get("softcap", 0.0) and (mask is None or allowed is None):
        given = mask if mask is not None else allowed
        options = {} if given is None else {"attn_mask": given}
        out = (yield call("scaled_dot_product_attention", query=q, key=k, value=v, scale=scale, **options))[0]
        scores = None
    else:
        # In f32, as a program that wants the scores would compute them.
        wide = []
        for x in (q, k, v):
            wide.append((yield call("to", input=x, dtype=Dtype("float32")))[0])
        turned = (yield call("transpose", input=wide[1], dim0=-2, dim1=-1))[0]
        scores = (yield call("matmul", input=wide[0], other=turned))[0]
        scores = (yield call("mul", input=scores, other=scale))[0]
        stages = [scores]
        if node.get("softcap", 0.0):
            cap = node.get("softcap")
            scores = (yield call("div", input=scores, other=cap))[0]
            scores = (yield call("mul", input=(yield call("tanh", input=scores))[0], other=cap))[0]
        stages.append(scores)
        if mask is not None:
            scores = (yield call("add", input=scores, other=mask))[0]
        if allowed is not None:
            scores = (yield call("where", condition=allowed, input=scores, other=-math.inf))[0]
        stages.append(scores)
        # A query that sees nothing has weights of zero.
        weights = (yield call("softmax", input=scores, dim=-1))[0]
        unseen = (yield call("isneginf", input=(yield call("amax", input=scores, dim=[-1], keepdim=True))[0]))[0]
        weights = (yield call("where", condition=unseen, input=0.0, other=weights))[0]
        stages.append(weights)
        out = (yield call("matmul", input=weights, other=wide[2]))[0]
        out = (yield call("to", input=out, dtype=Dtype(node.outputs[0].dtype.name)))[0]
        scores = stages[node.get("qk_matmul_output_mode", 0)]
        scores = (yield call("to", input=scores, dtype=Dtype(node.outputs[-1].dtype.name)))[0]
    if flat:
        out = (yield call("permute", input=out, dims=[0, 2, 1, 3]))[0]
        out = (yield call("reshape", input=out, shape=[*out.shape[:2], out.shape[2] * out.shape[3]]))[0]
    present = [keys, values] if past_key is not None else []
    return [out, *present, *([scores] if scores_wanted else [])]
