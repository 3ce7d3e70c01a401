"""Small models as users write them: plain PyTorch, nothing of Fulgurite."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x)


class CausalSelfAttention(nn.Module):
    """As nanoGPT writes it."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.fused = heads, fused
        self.register_buffer("bias", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, fused)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width), act=nn.GELU(approximate="tanh"),
                                      c_proj=nn.Linear(4 * width, width)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.c_proj(m.act(m.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary=32, width=16, heads=2, layers=2, fused=True):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocabulary, width), wpe=nn.Embedding(16, width),
            h=nn.ModuleList([Block(width, heads, fused) for _ in range(layers)]), ln_f=nn.LayerNorm(width)))
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)


def rotate_half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        size = width // heads
        self.heads, self.groups, self.size = heads, groups, size
        self.q_proj = nn.Linear(width, heads * size, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(heads * size, width, bias=False)
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)

    def forward(self, x, cos, sin, mask):
        B, T, _ = x.shape
        h = self.input_layernorm(x)
        q = self.q_proj(h).view(B, T, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(h).view(B, T, self.groups, self.size).transpose(1, 2)
        v = self.v_proj(h).view(B, T, self.groups, self.size).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = (t[:, :, None].expand(B, self.groups, self.heads // self.groups, T, self.size)
                .reshape(B, self.heads, T, self.size) for t in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) / self.size**0.5 + mask
        scores = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        x = x + self.o_proj(torch.matmul(scores, v).transpose(1, 2).reshape(B, T, -1))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    """As transformers writes it, with grouped queries, a mask and rotary positions computed in the forward pass."""

    def __init__(self, vocabulary=32, width=16, heads=4, groups=2, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([LlamaLayer(width, heads, groups) for _ in range(layers)])
        self.norm, self.lm_head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        self.register_buffer("inv_freq", 1.0 / (10000.0 ** (torch.arange(0, size, 2).float() / size)))

    @torch.no_grad()
    def rotary(self, positions):
        freqs = (self.inv_freq[None, :, None].float() @ positions[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((freqs, freqs), dim=-1)
        return angles.cos()[:, None], angles.sin()[:, None]

    def forward(self, ids):
        T = ids.shape[1]
        cos, sin = self.rotary(torch.arange(T, device=ids.device).unsqueeze(0))
        mask = torch.full((T, T), torch.finfo(torch.float32).min, device=ids.device)
        mask = torch.triu(mask, diagonal=1)[None, None]
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


class BasicBlock(nn.Module):
    """As torchvision's ResNet writes it."""

    def __init__(self, inner, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inner != out:
            self.downsample = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = BasicBlock(8, 8, 1), BasicBlock(8, 16, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(16, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Vit(nn.Module):
    def __init__(self, width=16, heads=2, layers=2, classes=5):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.ln = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.attention = nn.ModuleList([nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(layers)])
        self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                                  for _ in range(layers)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.conv_proj(x)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(n, -1, -1), x], dim=1) + self.pos_embedding
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp)):
            y = self.ln[2 * i](x)
            x = x + attention(y, y, y, need_weights=False)[0]
            x = x + mlp(self.ln[2 * i + 1](x))
        return self.head(self.ln[-1](x)[:, 0])
