// The kernels of NVIDIA GPUs, for bfloat16 activations and float32 weights. A warp works on a row of the stream, a few
// lanes on a head, a block on a row of logits; every memory access is 16 bytes wide where it can be. Upper-case names
// are compiled in (NVRTC, no header), lower-case sizes differ from call to call and come last. All are templates, so that
// only the one asked for becomes machine code.

typedef unsigned short bf16;  // its bits: the upper half of a float's
typedef unsigned int u32;
typedef long long i64;

constexpr int BLOCK = 256;  // threads
constexpr float EPS = 1e-6f;
constexpr u32 ALL = 0xffffffffu;

struct Eight { float at[8]; };

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x << 16); }

__device__ __forceinline__ u32 pack(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Eight bf16 as they lie in memory: half the registers of what they unpack to.
__device__ __forceinline__ uint4 packed(const bf16* p) { return *reinterpret_cast<const uint4*>(p); }

// Has the compiler unpack these again, rather than keep what it unpacked.
__device__ __forceinline__ void forget(uint4& u) { asm volatile("" : "+r"(u.x), "+r"(u.y), "+r"(u.z), "+r"(u.w)); }

__device__ __forceinline__ Eight unpack(const uint4& u) {
  return {__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u), __uint_as_float(u.y << 16),
          __uint_as_float(u.y & 0xffff0000u), __uint_as_float(u.z << 16), __uint_as_float(u.z & 0xffff0000u),
          __uint_as_float(u.w << 16), __uint_as_float(u.w & 0xffff0000u)};
}

__device__ __forceinline__ Eight load(const bf16* p) { return unpack(packed(p)); }

__device__ __forceinline__ Eight load(const float* p) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

__device__ __forceinline__ void store(bf16* p, const Eight& x) {
  const float* f = x.at;
  *reinterpret_cast<uint4*>(p) = make_uint4(pack(f[0], f[1]), pack(f[2], f[3]), pack(f[4], f[5]), pack(f[6], f[7]));
}

__device__ __forceinline__ void store(float* p, const Eight& x) {
  const float* f = x.at;
  reinterpret_cast<float4*>(p)[0] = make_float4(f[0], f[1], f[2], f[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(f[4], f[5], f[6], f[7]);
}

// The sum over COUNT neighbouring lanes, given to each of them; other lanes of the warp may be elsewhere.
template <int COUNT>
__device__ __forceinline__ float sum(float x) {
  const u32 lane = threadIdx.x & 31, group = COUNT == 32 ? ALL : ((1u << (COUNT & 31)) - 1) << (lane / COUNT * COUNT);
#pragma unroll
  for (int step = COUNT / 2; step > 0; step /= 2) x += __shfl_xor_sync(group, x, step);
  return x;
}

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// ---- norms: a warp a row, its C channels in 8s over the lanes ---------------------------------------------------

#define LANE (threadIdx.x & 31)
#define VECTORS ((C + 255) / 256)
#define EACH_VECTOR(j, column)       \
  _Pragma("unroll")                  \
  for (int j = 0; j < VECTORS; j++)  \
    if (const int column = (j * 32 + LANE) * 8; C % 256 == 0 || column < C)
#define EACH(i) _Pragma("unroll") for (int i = 0; i < 8; i++)

// x → norm
template <int C>
__global__ void norm_forward(const bf16* x, bf16* out, int rows) {
  const i64 row = thread() / 32, o = row * C;
  if (row >= rows) return;
  Eight f[VECTORS];
  float squares = 0;
  EACH_VECTOR(j, c) { f[j] = load(x + o + c); EACH(i) squares += f[j].at[i] * f[j].at[i]; }
  const float r = rsqrtf(sum<32>(squares) / C + EPS);
  EACH_VECTOR(j, c) { EACH(i) f[j].at[i] *= r; store(out + o + c, f[j]); }
}

// x, gradient of the norm, gradient of x from elsewhere → gradient of x
template <int C>
__global__ void norm_backward(const bf16* x, const bf16* of_norm, const bf16* direct, bf16* dx, int rows) {
  const i64 row = thread() / 32, o = row * C;
  if (row >= rows) return;
  Eight f[VECTORS], g[VECTORS];
  float squares = 0, dot = 0;
  EACH_VECTOR(j, c) {
    f[j] = load(x + o + c); g[j] = load(of_norm + o + c);
    EACH(i) { squares += f[j].at[i] * f[j].at[i]; dot += f[j].at[i] * g[j].at[i]; }
  }
  const float r = rsqrtf(sum<32>(squares) / C + EPS), k = sum<32>(dot) / C * r * r * r;
  EACH_VECTOR(j, c) {
    Eight d = load(direct + o + c);
    EACH(i) d.at[i] += g[j].at[i] * r - f[j].at[i] * k;
    store(dx + o + c, d);
  }
}

// x, x0, (keep, again) → keep · x + again · x0, and its norm
template <int C>
__global__ void mix_norm_forward(const bf16* x, const bf16* x0, const float* shares, bf16* y, bf16* out, int rows) {
  const i64 row = thread() / 32, o = row * C;
  if (row >= rows) return;
  const float keep = shares[0], again = shares[1];
  Eight f[VECTORS];
  float squares = 0;
  EACH_VECTOR(j, c) {
    const Eight a = load(x + o + c), b = load(x0 + o + c);
    EACH(i) { const float z = keep * a.at[i] + again * b.at[i]; f[j].at[i] = z; squares += z * z; }
    store(y + o + c, f[j]);
  }
  const float r = rsqrtf(sum<32>(squares) / C + EPS);
  EACH_VECTOR(j, c) { EACH(i) f[j].at[i] *= r; store(out + o + c, f[j]); }
}

// x, x0, (keep, again), gradients of y, of its norm, of x0 from elsewhere → those of x and x0, and of keep and again,
// a pair for each block
template <int C>
__global__ void mix_norm_backward(const bf16* x, const bf16* x0, const float* shares, const bf16* dy,
                                  const bf16* of_norm, const bf16* direct, bf16* dx, bf16* dx0, float* dshares,
                                  int rows) {
  __shared__ float parts[2][BLOCK / 32];
  const i64 row = thread() / 32, o = row * C;
  const float keep = shares[0], again = shares[1];
  float dkeep = 0, dagain = 0;
  if (row < rows) {
    uint4 xs[VECTORS], x0s[VECTORS], gs[VECTORS];
    float squares = 0, dot = 0;
    EACH_VECTOR(j, c) { xs[j] = packed(x + o + c); x0s[j] = packed(x0 + o + c); gs[j] = packed(of_norm + o + c); }
    EACH_VECTOR(j, c) {
      const Eight a = unpack(xs[j]), b = unpack(x0s[j]), g = unpack(gs[j]);
      EACH(i) {
        const float z = keep * a.at[i] + again * b.at[i];
        squares += z * z; dot += z * g.at[i];
      }
    }
    const float r = rsqrtf(sum<32>(squares) / C + EPS), k = sum<32>(dot) / C * r * r * r;
    EACH_VECTOR(j, c) {
      forget(xs[j]); forget(x0s[j]); forget(gs[j]);
      const Eight a = unpack(xs[j]), b = unpack(x0s[j]), g = unpack(gs[j]);
      Eight d = load(dy + o + c), d0 = load(direct + o + c);
      EACH(i) {
        const float z = keep * a.at[i] + again * b.at[i], t = d.at[i] + g.at[i] * r - z * k;
        dkeep += t * a.at[i]; dagain += t * b.at[i];
        d.at[i] = keep * t; d0.at[i] += again * t;
      }
      store(dx + o + c, d); store(dx0 + o + c, d0);
    }
  }
  dkeep = sum<32>(dkeep); dagain = sum<32>(dagain);
  if (LANE == 0) { parts[0][threadIdx.x / 32] = dkeep; parts[1][threadIdx.x / 32] = dagain; }
  __syncthreads();
  if (threadIdx.x >= 2) return;
  float total = 0;
  for (int i = 0; i < BLOCK / 32; i++) total += parts[threadIdx.x][i];
  dshares[2 * blockIdx.x + threadIdx.x] = total;
}

// x, key, value → x + σ(s) value, where s = norm(x) · norm(key) / √C
template <int C>
__global__ void gated_add_forward(const bf16* x, const bf16* key, const bf16* value, bf16* out, int rows) {
  const i64 row = thread() / 32, o = row * C;
  if (row >= rows) return;
  Eight f[VECTORS];
  float xx = 0, kk = 0, xk = 0;
  EACH_VECTOR(j, c) {
    f[j] = load(x + o + c);
    const Eight k = load(key + o + c);
    EACH(i) { xx += f[j].at[i] * f[j].at[i]; kk += k.at[i] * k.at[i]; xk += f[j].at[i] * k.at[i]; }
  }
  const float r = rsqrtf(sum<32>(xx) / C + EPS) * rsqrtf(sum<32>(kk) / C + EPS);
  const float gate = 1 / (1 + __expf(-sum<32>(xk) * r * rsqrtf(C)));
  EACH_VECTOR(j, c) {
    const Eight v = load(value + o + c);
    EACH(i) f[j].at[i] += gate * v.at[i];
    store(out + o + c, f[j]);
  }
}

// x, key, value, gradient of the sum → gradients of x, key and value
template <int C>
__global__ void gated_add_backward(const bf16* x, const bf16* key, const bf16* value, const bf16* dy, bf16* dx,
                                   bf16* dkey, bf16* dvalue, int rows) {
  const i64 row = thread() / 32, o = row * C;
  if (row >= rows) return;
  uint4 xs[VECTORS], ks[VECTORS], ds[VECTORS];
  float xx = 0, kk = 0, xk = 0, dgate = 0;
  EACH_VECTOR(j, c) { xs[j] = packed(x + o + c); ks[j] = packed(key + o + c); ds[j] = packed(dy + o + c); }
  EACH_VECTOR(j, c) {
    const Eight f = unpack(xs[j]), k = unpack(ks[j]), d = unpack(ds[j]), v = load(value + o + c);
    EACH(i) {
      xx += f.at[i] * f.at[i]; kk += k.at[i] * k.at[i]; xk += f.at[i] * k.at[i]; dgate += d.at[i] * v.at[i];
    }
  }
  const float rx = rsqrtf(sum<32>(xx) / C + EPS), rk = rsqrtf(sum<32>(kk) / C + EPS), dot = sum<32>(xk) * rx * rk;
  const float gate = 1 / (1 + __expf(-dot * rsqrtf(C)));
  const float dfit = sum<32>(dgate) * gate * (1 - gate) * rsqrtf(C);  // of norm(x) · norm(key)
  EACH_VECTOR(j, c) {
    forget(xs[j]); forget(ks[j]); forget(ds[j]);
    Eight f = unpack(xs[j]), k = unpack(ks[j]), d = unpack(ds[j]), dv;
    EACH(i) {
      const float a = f.at[i] * rx, b = k.at[i] * rk;
      f.at[i] = d.at[i] + dfit * rx * (b - a * dot / C); k.at[i] = dfit * rk * (a - b * dot / C);
      dv.at[i] = gate * d.at[i];
    }
    store(dx + o + c, f); store(dkey + o + c, k); store(dvalue + o + c, dv);
  }
}

// ---- ReLU²: eight elements a thread -----------------------------------------------------------------------------

template <int = 0>
__global__ void relu_squared_forward(const bf16* x, bf16* y, int vectors) {
  const i64 v = thread();
  if (v >= vectors) return;
  Eight f = load(x + v * 8);
  EACH(i) { const float z = f.at[i] <= 0 ? 0 : f.at[i]; f.at[i] = z * z; }  // NaN stays NaN
  store(y + v * 8, f);
}

// y, dy → dx = 2 dy √y
template <int = 0>
__global__ void relu_squared_backward(const bf16* y, const bf16* dy, bf16* dx, int vectors) {
  const i64 v = thread();
  if (v >= vectors) return;
  const Eight f = load(y + v * 8);
  Eight g = load(dy + v * 8);
  EACH(i) g.at[i] *= 2 * sqrtf(f.at[i]);
  store(dx + v * 8, g);
}

// ---- rows of a table --------------------------------------------------------------------------------------------

__device__ __forceinline__ void add(float* p, const Eight& x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x.at[0]), "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3]) : "memory");
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p + 4), "f"(x.at[4]), "f"(x.at[5]), "f"(x.at[6]), "f"(x.at[7]) : "memory");
#else
  EACH(i) atomicAdd(p + i, x.at[i]);
#endif
}

// table (V, C), ids (N) → rows (N, C)
template <int C>
__global__ void embedding_forward(const float* table, const int* ids, bf16* out, int rows) {
  const i64 row = thread() / 32;
  if (row >= rows) return;
  const float* from = table + (i64)ids[row] * C;
  EACH_VECTOR(j, c) store(out + row * C + c, load(from + c));
}

// rows d (N, C), ids (N), the order that sorts them → gradient of the table (V, C), which starts at zero. A warp adds up
// RUN neighbours in that order: equal ids follow each other, and only where they change is memory touched.
template <int C, int RUN>
__global__ void embedding_backward(const bf16* d, const int* ids, const u32* order, float* table, int rows) {
  const i64 first = thread() / 32 * RUN;
  if (first >= rows) return;
  const i64 last = first + RUN < rows ? first + RUN : rows;
  Eight sums[VECTORS] = {};
  int id = ids[order[first]];
  for (i64 at = first; at < last; at++) {
    const i64 row = order[at];
    if (ids[row] != id) {
      EACH_VECTOR(j, c) add(table + (i64)id * C + c, sums[j]);
      EACH_VECTOR(j, c) sums[j] = {};
      id = ids[row];
    }
    EACH_VECTOR(j, c) { const Eight f = load(d + row * C + c); EACH(i) sums[j].at[i] += f.at[i]; }
  }
  EACH_VECTOR(j, c) add(table + (i64)id * C + c, sums[j]);
}

// ---- queries, keys and values: D/16 lanes a head, each with eight channels of either half -----------------------

#define LANES (D / 16)
#define SLOTS (H + 2 * K)  // heads of a token: of queries, of keys, of values
#define THIS_HEAD                                                                                       \
  const i64 unit = thread() / LANES, token = unit / SLOTS;                                              \
  if (token >= tokens) return;                                                                          \
  const int slot = (int)(unit % SLOTS), lane = (int)(thread() % LANES), low = lane * 8, high = low + D / 2; \
  const int t = (int)(token % T);                                                                       \
  const bf16* row = qkv + token * COLUMNS

// qkv, cos (T, D/2), sin, values (V, K·D), ids → q (B, T, H, D), k and v (B, T, K, D)
template <int T, int H, int K, int D, int COLUMNS, int VALUES>
__global__ void rotary_qkv_forward(const bf16* qkv, const float* cosine, const float* sine, const float* values,
                                   const int* ids, bf16* q, bf16* k, bf16* v, int tokens) {
  THIS_HEAD;
  Eight a = load(row + slot * D + low), b = load(row + slot * D + high);
  if (slot < H + K) {
    float squares = 0;
    EACH(i) squares += a.at[i] * a.at[i] + b.at[i] * b.at[i];
    const float r = rsqrtf(sum<LANES>(squares) / D + EPS);
    const Eight c = load(cosine + t * (D / 2) + low), s = load(sine + t * (D / 2) + low);
    EACH(i) {
      const float x = a.at[i] * r, y = b.at[i] * r;
      a.at[i] = x * c.at[i] - y * s.at[i]; b.at[i] = x * s.at[i] + y * c.at[i];
    }
    bf16* out = slot < H ? q + (token * H + slot) * D : k + (token * K + slot - H) * D;
    store(out + low, a); store(out + high, b);
  } else {
    const int h = slot - H - K;
    if (VALUES) {
      const float gate = 2 / (1 + __expf(-to_float(row[SLOTS * D + h])));
      const float* value = values + ((i64)ids[token] * K + h) * D;
      const Eight e = load(value + low), f = load(value + high);
      EACH(i) { a.at[i] += gate * e.at[i]; b.at[i] += gate * f.at[i]; }
    }
    bf16* out = v + (token * K + h) * D;
    store(out + low, a); store(out + high, b);
  }
}

#ifdef PIECES  // of a row; FROM and STOP say where their keys lie, START where their queries begin (they stop at STOP)

__device__ constexpr int start[] = {START}, stop[] = {STOP}, from[] = {FROM};

// What the pieces, each (B, length, heads, D), have at position t of one head, added up.
template <int T, int HEADS, int D>
__device__ __forceinline__ void gather(const bf16* const (&pieces)[PIECES], const int (&begin)[PIECES], i64 token,
                                       int head, int low, Eight& a, Eight& b) {
  const int t = (int)(token % T);
  a = {}; b = {};
#pragma unroll
  for (int p = 0; p < PIECES; p++) {
    if (t < begin[p] || t >= stop[p]) continue;
    const bf16* at = pieces[p] + ((token / T * (stop[p] - begin[p]) + t - begin[p]) * HEADS + head) * D;
    const Eight e = load(at + low), f = load(at + low + D / 2);
    EACH(i) { a.at[i] += e.at[i]; b.at[i] += f.at[i]; }
  }
}

// qkv, cos, sin, values, ids, then gradients of q, of k, of v of each piece → those of qkv and of the looked-up values
// (N, K·D). WINDOW tells instances with other pieces apart.
template <int T, int H, int K, int D, int COLUMNS, int VALUES, int WINDOW>
__global__ void rotary_qkv_backward(const bf16* qkv, const float* cosine, const float* sine, const float* values,
                                    const int* ids, PIECE_ARGUMENTS, bf16* dqkv, bf16* dvalues, int tokens) {
  THIS_HEAD;
  const bf16* const dq[] = {PIECE_DQ};
  const bf16* const dk[] = {PIECE_DK};
  const bf16* const dv[] = {PIECE_DV};
  bf16* drow = dqkv + token * COLUMNS;
  Eight x, y;  // the gradient, in its two halves
  if (slot < H + K) {
    if (slot < H) gather<T, H, D>(dq, start, token, slot, low, x, y);
    else gather<T, K, D>(dk, from, token, slot - H, low, x, y);
    const Eight a = load(row + slot * D + low), b = load(row + slot * D + high);
    const Eight c = load(cosine + t * (D / 2) + low), s = load(sine + t * (D / 2) + low);
    float squares = 0, dot = 0;
    EACH(i) {
      const float u = x.at[i] * c.at[i] + y.at[i] * s.at[i], w = y.at[i] * c.at[i] - x.at[i] * s.at[i];
      x.at[i] = u; y.at[i] = w;
      squares += a.at[i] * a.at[i] + b.at[i] * b.at[i];
      dot += a.at[i] * u + b.at[i] * w;
    }
    const float r = rsqrtf(sum<LANES>(squares) / D + EPS), along = sum<LANES>(dot) / D * r * r * r;
    EACH(i) { x.at[i] = x.at[i] * r - a.at[i] * along; y.at[i] = y.at[i] * r - b.at[i] * along; }
  } else {
    const int h = slot - H - K;
    gather<T, K, D>(dv, from, token, h, low, x, y);
    if (VALUES) {
      const float open = 1 / (1 + __expf(-to_float(row[SLOTS * D + h])));
      const float* value = values + ((i64)ids[token] * K + h) * D;
      const Eight e = load(value + low), f = load(value + high);
      Eight p, q;
      float dot = 0;
      EACH(i) {
        dot += x.at[i] * e.at[i] + y.at[i] * f.at[i];
        p.at[i] = 2 * open * x.at[i]; q.at[i] = 2 * open * y.at[i];
      }
      dot = sum<LANES>(dot);
      bf16* out = dvalues + (token * K + h) * D;
      store(out + low, p); store(out + high, q);
      if (lane == 0) drow[SLOTS * D + h] = (bf16)pack(dot * 2 * open * (1 - open), 0);
    }
    if (h == 0) for (int pad = SLOTS * D + (VALUES ? K : 0) + lane; pad < COLUMNS; pad += LANES) drow[pad] = 0;
  }
  store(drow + slot * D + low, x); store(drow + slot * D + high, y);
}

#endif

// ---- loss: a block a row ----------------------------------------------------------------------------------------

__device__ __forceinline__ float tanh_of(float x) { return 1 - __fdividef(2.f, 1 + __expf(2 * x)); }

// logits, cap → cap · tanh(logits / cap), eight a thread
template <int = 0>
__global__ void softcap_forward(const bf16* logits, const float* cap, float* capped, int vectors) {
  const i64 o = thread() * 8;
  if (o >= vectors * 8ll) return;
  Eight x = load(logits + o);
  EACH(i) x.at[i] = cap[0] * tanh_of(x.at[i] / cap[0]);
  store(capped + o, x);
}

// capped logits, their gradient, cap → gradient of the logits
template <int = 0>
__global__ void softcap_backward(const float* capped, const float* of_capped, const float* cap, bf16* dlogits,
                                 int vectors) {
  const i64 o = thread() * 8;
  if (o >= vectors * 8ll) return;
  const Eight y = load(capped + o);
  Eight g = load(of_capped + o);
  EACH(i) { const float t = y.at[i] / cap[0]; g.at[i] *= 1 - t * t; }
  store(dlogits + o, g);
}

// logits (N, V), ids, cap → loss (N) and logsumexp (N). Capped logits are below the cap, so that subtracting it does what
// subtracting their maximum does elsewhere.
template <int V>
__global__ void cross_entropy_forward(const bf16* logits, const int* ids, const float* cap_, float* loss, float* lse,
                                      int rows) {
  __shared__ float parts[BLOCK / 32];
  const i64 row = blockIdx.x;
  const float cap = cap_[0], scale = 1 / cap;
  float total = 0;
  for (int c = threadIdx.x * 8; c < V; c += BLOCK * 8) {
    const Eight x = load(logits + row * V + c);
    EACH(i) total += __expf(cap * tanh_of(x.at[i] * scale) - cap);
  }
  total = sum<32>(total);
  if (LANE == 0) parts[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  total = 0;
  for (int i = 0; i < BLOCK / 32; i++) total += parts[i];
  const float log_sum = cap + logf(total);
  loss[row] = log_sum - cap * tanh_of(to_float(logits[row * V + ids[row]]) * scale);
  lse[row] = log_sum;
}

// logits, ids, cap, logsumexp, gradient of the loss (N) → gradient of the logits. The hardware's tanh, right to 2^-11,
// is finer than the logits' own bfloat16.
template <int V>
__global__ void cross_entropy_backward(const bf16* logits, const int* ids, const float* cap_, const float* lse,
                                       const float* of_loss, bf16* dlogits, int rows) {
  const i64 row = blockIdx.x;
  const float cap = cap_[0], scale = 1 / cap, log_sum = lse[row], g = of_loss[row];
  const int target = ids[row];
  for (int c = threadIdx.x * 8; c < V; c += BLOCK * 8) {
    Eight x = load(logits + row * V + c);
    EACH(i) {
      float t;
      asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(x.at[i] * scale));
      x.at[i] = (__expf(cap * t - log_sum) - (c + i == target ? 1.f : 0.f)) * (1 - t * t) * g;
    }
    store(dlogits + row * V + c, x);
  }
}

// ---- optimizer: eight elements a thread -------------------------------------------------------------------------

// p, gradient, m, v, (lr, beta1, beta2, 1 - beta1^step, 1 - beta2^step, eps) → p, m, v
template <int = 0>
__global__ void adamw(const float* p, const float* grad, const float* m, const float* v, const float* now, float* p_,
                      float* m_, float* v_, int vectors) {
  const i64 o = thread() * 8;
  if (o >= vectors * 8ll) return;
  const float lr = now[0], beta1 = now[1], beta2 = now[2], correct1 = 1 / now[3], correct2 = 1 / now[4], eps = now[5];
  const Eight g = load(grad + o);
  Eight a = load(p + o), b = load(m + o), c = load(v + o);
  EACH(i) {
    b.at[i] = beta1 * b.at[i] + (1 - beta1) * g.at[i];
    c.at[i] = beta2 * c.at[i] + (1 - beta2) * g.at[i] * g.at[i];
    a.at[i] -= lr * (b.at[i] * correct1) / (sqrtf(c.at[i] * correct2) + eps);
  }
  store(p_ + o, a); store(m_ + o, b); store(v_ + o, c);
}

// momentum, gradient, (mu) → momentum, update
template <int = 0>
__global__ void nesterov(const float* momentum, const float* grad, const float* mu_, float* momentum_, float* update,
                         int vectors) {
  const i64 o = thread() * 8;
  if (o >= vectors * 8ll) return;
  const float mu = mu_[0];
  Eight m = load(momentum + o), g = load(grad + o);
  EACH(i) {
    m.at[i] = mu * m.at[i] + (1 - mu) * g.at[i];
    g.at[i] = (1 - mu) * g.at[i] + mu * m.at[i];
  }
  store(momentum_ + o, m); store(update + o, g);
}

// p, update, scale of each row or column, (lr, decay) → p. Weights decay only where the step agrees with them.
template <int BY_ROW, int COLUMNS>
__global__ void cautious_step(const float* p, const float* update, const float* scale, const float* now, float* p_,
                              int matrix_rows, int vectors) {
  const i64 o = thread() * 8, row = o / COLUMNS;
  if (o >= vectors * 8ll) return;
  const float lr = now[0], decay = now[1];
  Eight a = load(p + o), u = load(update + o), s;
  if (BY_ROW) { EACH(i) s.at[i] = scale[row]; }
  else s = load(scale + row / matrix_rows * COLUMNS + o % COLUMNS);
  EACH(i) {
    const float step = u.at[i] * s.at[i];
    a.at[i] -= lr * (step + (step * a.at[i] >= 0 ? decay * a.at[i] : 0));
  }
  store(p_ + o, a);
}
