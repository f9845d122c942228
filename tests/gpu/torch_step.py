"""Training steps in PyTorch beside those of a compiled program, for gpu.sh: the same model, sizes, tokens per
step, AdamW, clipped norm, and bf16 by autocast; torch.compile, fused AdamW, scaled_dot_product_attention.

    torch_step.py gpt2|llama STEPS TEXT NAME=SIZE...

Sizes are those of samples/{gpt2,llama}. TEXT is read as bytes. Nothing waits for the GPU between steps but at the
tenth and the last. Prints "seconds S", of a step between these two.
"""

import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import gpt2

WARM = 10


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        width = kv_heads * self.head_dim
        self.q, self.k, self.v, self.o = (nn.Linear(dim, n, bias=False) for n in (dim, width, width, dim))
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((dim, ffn), (dim, ffn), (ffn, dim)))

    def forward(self, x, cos, sin):
        b, s, d = x.shape
        h = self.norm1(x)
        q = rotated(self.q(h).view(b, s, self.heads, self.head_dim).transpose(1, 2), cos, sin)
        k = rotated(self.k(h).view(b, s, self.kv_heads, self.head_dim).transpose(1, 2), cos, sin)
        v = self.v(h).view(b, s, self.kv_heads, self.head_dim).transpose(1, 2)
        n = self.heads // self.kv_heads
        k, v = k.repeat_interleave(n, 1).type_as(v), v.repeat_interleave(n, 1)
        a = F.scaled_dot_product_attention(q.type_as(v), k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocab, dim, layers, heads, kv_heads, ffn, seq, theta):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm, self.head = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        half = dim // heads // 2
        angle = torch.outer(torch.arange(seq).float(), theta ** -(torch.arange(half).float() / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids, labels):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


def make_model(name, size):
    if name == "llama":
        return Llama(*(int(size[k]) for k in ("vocab", "dim", "layers", "heads", "kv_heads", "ffn", "seq")),
                     float(size["theta"]))
    assert int(size["ffn"]) == 4 * int(size["dim"]), "gpt2.py has hidden layers of four times the width"
    gpt2.VOCAB, gpt2.CONTEXT, gpt2.DIM, gpt2.LAYERS, gpt2.HEADS = (
        int(size[k]) for k in ("vocab", "context", "dim", "layers", "heads"))
    return gpt2.GPT2()


def main():
    name, steps, path, *sizes = sys.argv[1:]
    size, steps = dict(s.split("=") for s in sizes), int(steps)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.manual_seed(0)
    batch, seq = int(size["batch"]), int(size["seq"])
    with open(path, "rb") as f:
        text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long().to(device)
    with torch.device(device):
        model = make_model(name, size)
    params = list(model.parameters())
    model = torch.compile(model)
    adamw = torch.optim.AdamW(params, lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    n = batch * (seq + 1)
    begin = loss = None
    for step in range(WARM + steps):
        if step == WARM:
            wait()
            begin = time.perf_counter()
        at = step * n % (len(text) - n)
        rows = text[at : at + n].view(batch, seq + 1)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
    wait()
    print(f"seconds {(time.perf_counter() - begin) / steps:.6f}")
    print(f"loss {loss.item():.4f}, PyTorch {torch.__version__}, {device}")


if __name__ == "__main__":
    main()
