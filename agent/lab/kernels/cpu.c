// The kernels of the Linux CPU. Each works on the rows (or whatever it says) from `begin` to `end`, so that threads can
// share them; `a` holds the arrays, inputs first, all float32 but for ids; `n` the sizes. The compiler makes vectors of
// the inner loops: keep them free of calls, branches and aliases.

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KERNEL(name) void name(void **restrict a, const int64_t *restrict n, int64_t begin, int64_t end)
#define F(i) ((float *)a[i])
#define I(i) ((const int32_t *)a[i])
#define EPS 1e-6f

// e^x to 2e-7, by 2^k · e^r with |r| ≤ ln 2 / 2. NaN stays NaN.
static inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  float k = rintf(x * 1.44269504f);
  float r = x - k * 0.693359375f + k * 2.12194440e-4f;
  float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.66666667e-1f + r * (4.16666667e-2f + r * (8.3333333e-3f + r * 1.3888889e-3f)))));
  union { int32_t i; float f; } power = {.i = ((int32_t)k + 127) << 23};
  return p * power.f;
}

static inline float fast_tanh(float x) { return 1.0f - 2.0f / (1.0f + fast_exp(2.0f * x)); }

static inline float sum_of_squares(const float *restrict x, int64_t C) {
  float sum = 0;
  for (int64_t i = 0; i < C; i++) sum += x[i] * x[i];
  return sum;
}

// ---- norms ------------------------------------------------------------------------------------------------------

// x → norm; n: rows, C
KERNEL(norm_forward) {
  const int64_t C = n[1];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * C;
    float *restrict out = F(1) + row * C;
    float r = 1.0f / sqrtf(sum_of_squares(x, C) / C + EPS);
    for (int64_t i = 0; i < C; i++) out[i] = x[i] * r;
  }
}

// x, gradient of the norm, gradient of x from elsewhere → gradient of x
KERNEL(norm_backward) {
  const int64_t C = n[1];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * C, *restrict g = F(1) + row * C, *restrict direct = F(2) + row * C;
    float *restrict dx = F(3) + row * C;
    float dot = 0;
    for (int64_t i = 0; i < C; i++) dot += x[i] * g[i];
    float r = 1.0f / sqrtf(sum_of_squares(x, C) / C + EPS), k = dot / C * r * r * r;
    for (int64_t i = 0; i < C; i++) dx[i] = direct[i] + g[i] * r - x[i] * k;
  }
}

// x, x0, (keep, again) → keep · x + again · x0, and its norm
KERNEL(mix_norm_forward) {
  const int64_t C = n[1];
  const float keep = F(2)[0], again = F(2)[1];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * C, *restrict x0 = F(1) + row * C;
    float *restrict y = F(3) + row * C, *restrict out = F(4) + row * C;
    float sum = 0;
    for (int64_t i = 0; i < C; i++) { y[i] = keep * x[i] + again * x0[i]; sum += y[i] * y[i]; }
    float r = 1.0f / sqrtf(sum / C + EPS);
    for (int64_t i = 0; i < C; i++) out[i] = y[i] * r;
  }
}

// x, x0, (keep, again), gradients of y, of its norm and of x0 from elsewhere → those of x and x0, and, a pair a row,
// those of keep and again
KERNEL(mix_norm_backward) {
  const int64_t C = n[1];
  const float keep = F(2)[0], again = F(2)[1];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * C, *restrict x0 = F(1) + row * C, *restrict dy = F(3) + row * C;
    const float *restrict g = F(4) + row * C, *restrict direct = F(5) + row * C;
    float *restrict dx = F(6) + row * C, *restrict dx0 = F(7) + row * C;
    float sum = 0, dot = 0, dkeep = 0, dagain = 0;
    for (int64_t i = 0; i < C; i++) {
      float y = keep * x[i] + again * x0[i];
      sum += y * y; dot += y * g[i];
    }
    float r = 1.0f / sqrtf(sum / C + EPS), k = dot / C * r * r * r;
    for (int64_t i = 0; i < C; i++) {
      float d = dy[i] + g[i] * r - (keep * x[i] + again * x0[i]) * k;
      dkeep += d * x[i]; dagain += d * x0[i];
      dx[i] = keep * d; dx0[i] = direct[i] + again * d;
    }
    F(8)[2 * row] = dkeep; F(8)[2 * row + 1] = dagain;
  }
}

// ---- ReLU² ------------------------------------------------------------------------------------------------------

KERNEL(relu_squared_forward) {  // elements
  const float *restrict x = F(0);
  float *restrict y = F(1);
  for (int64_t i = begin; i < end; i++) { float z = x[i] <= 0 ? 0 : x[i]; y[i] = z * z; }
}

KERNEL(relu_squared_backward) {  // y, dy → dx = 2 dy √y
  const float *restrict y = F(0), *restrict dy = F(1);
  float *restrict dx = F(2);
  for (int64_t i = begin; i < end; i++) dx[i] = 2 * dy[i] * sqrtf(y[i]);
}

// ---- rows of a table ------------------------------------------------------------------------------------------------

// table (V, C), ids (N) → rows (N, C); n: C, N
KERNEL(embedding_forward) {
  for (int64_t row = begin; row < end; row++)
    memcpy(F(2) + row * n[0], F(0) + I(1)[row] * n[0], n[0] * sizeof(float));
}

// rows d (N, C), ids → gradient of the table (V, C); each thread takes some of the columns; n: C, N, V
KERNEL(embedding_backward) {
  const int64_t C = n[0], N = n[1], V = n[2], width = end - begin;
  for (int64_t v = 0; v < V; v++) memset(F(2) + v * C + begin, 0, width * sizeof(float));
  for (int64_t row = 0; row < N; row++) {
    const float *restrict d = F(0) + row * C + begin;
    float *restrict sum = F(2) + I(1)[row] * C + begin;
    for (int64_t i = 0; i < width; i++) sum[i] += d[i];
  }
}

// ---- queries, keys and values -----------------------------------------------------------------------------------

// n: tokens, T, H, K, D, columns of qkv, 1 with value embeddings
#define QKV_SIZES const int64_t T = n[1], H = n[2], K = n[3], D = n[4], columns = n[5], half = D / 2, with_values = n[6]

// qkv, cos (T, D/2), sin, values (V, K·D), ids → q (B, H, T, D), k and v (B, K, T, D)
KERNEL(rotary_qkv_forward) {
  QKV_SIZES;
  for (int64_t token = begin; token < end; token++) {
    const int64_t b = token / T, t = token % T;
    const float *restrict row = F(0) + token * columns, *restrict c = F(1) + t * half, *restrict s = F(2) + t * half;
    for (int64_t h = 0; h < H + K; h++) {
      const float *restrict x = row + h * D;
      float *restrict y = h < H ? F(5) + ((b * H + h) * T + t) * D : F(6) + ((b * K + h - H) * T + t) * D;
      float r = 1.0f / sqrtf(sum_of_squares(x, D) / D + EPS);
      for (int64_t i = 0; i < half; i++) {
        float u = x[i] * r, w = x[i + half] * r;
        y[i] = u * c[i] - w * s[i]; y[i + half] = u * s[i] + w * c[i];
      }
    }
    for (int64_t h = 0; h < K; h++) {
      const float *restrict x = row + (H + K + h) * D;
      const float *restrict value = F(3) + (with_values ? (I(4)[token] * K + h) * D : 0);
      float *restrict y = F(7) + ((b * K + h) * T + t) * D;
      float gate = with_values ? 2.0f / (1.0f + fast_exp(-row[(H + 2 * K) * D + h])) : 0.0f;
      if (with_values) for (int64_t i = 0; i < D; i++) y[i] = x[i] + gate * value[i];
      else memcpy(y, x, D * sizeof(float));
    }
  }
}

// The gradient at position t of one head out of those of the pieces, each (B, heads, length, D), starting at `from`.
static inline void gather_pieces(float *restrict sum, void **restrict pieces, const int64_t *restrict from,
                                 const int64_t *restrict stop, int64_t count, int64_t row, int64_t t, int64_t D) {
  memset(sum, 0, D * sizeof(float));
  for (int64_t p = 0; p < count; p++) {
    if (t < from[p] || t >= stop[p]) continue;
    const float *restrict part = (const float *)pieces[p] + (row * (stop[p] - from[p]) + t - from[p]) * D;
    for (int64_t i = 0; i < D; i++) sum[i] += part[i];
  }
}

// qkv, cos, sin, values, ids, then gradients of q, of k, of v of each piece → those of qkv and of the looked-up values
// (N, K·D). After the sizes n holds: the window, how many pieces, then start, stop and first of each.
KERNEL(rotary_qkv_backward) {
  QKV_SIZES;
  const int64_t P = n[8], *start = n + 9, *stop = start + P, *first = stop + P;
  void **dq = a + 5, **dk = dq + P, **dv = dk + P;
  float g[1024];
  for (int64_t token = begin; token < end; token++) {
    const int64_t b = token / T, t = token % T;
    const float *restrict row = F(0) + token * columns, *restrict c = F(1) + t * half, *restrict s = F(2) + t * half;
    float *restrict drow = F(5 + 3 * P) + token * columns;
    for (int64_t h = 0; h < H + K; h++) {
      const float *restrict x = row + h * D;
      float *restrict dx = drow + h * D;
      if (h < H) gather_pieces(g, dq, start, stop, P, b * H + h, t, D);
      else gather_pieces(g, dk, first, stop, P, b * K + h - H, t, D);
      float dot = 0;
      for (int64_t i = 0; i < half; i++) {
        float u = g[i] * c[i] + g[i + half] * s[i], w = g[i + half] * c[i] - g[i] * s[i];
        g[i] = u; g[i + half] = w;
        dot += x[i] * u + x[i + half] * w;
      }
      float r = 1.0f / sqrtf(sum_of_squares(x, D) / D + EPS), k = dot / D * r * r * r;
      for (int64_t i = 0; i < D; i++) dx[i] = g[i] * r - x[i] * k;
    }
    float *restrict dgates = drow + (H + 2 * K) * D;
    memset(dgates, 0, (columns - (H + 2 * K) * D) * sizeof(float));
    for (int64_t h = 0; h < K; h++) {
      float *restrict dx = drow + (H + K + h) * D;
      gather_pieces(dx, dv, first, stop, P, b * K + h, t, D);
      if (!with_values) continue;
      const float *restrict value = F(3) + (I(4)[token] * K + h) * D;
      float *restrict dvalue = F(6 + 3 * P) + (token * K + h) * D;
      float open = 1.0f / (1.0f + fast_exp(-row[(H + 2 * K) * D + h])), dot = 0;
      for (int64_t i = 0; i < D; i++) { dvalue[i] = 2.0f * open * dx[i]; dot += dx[i] * value[i]; }
      dgates[h] = dot * 2.0f * open * (1.0f - open);
    }
  }
}

// ---- attention --------------------------------------------------------------------------------------------------

// The compiler makes no vectors of a maximum in one variable, as a NaN would depend on the order.
static inline float largest(const float *restrict x, int64_t count) {
  float top[16];
  for (int j = 0; j < 16; j++) top[j] = x[0];
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int j = 0; j < 16; j++) top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
  for (; i < count; i++) top[0] = x[i] > top[0] ? x[i] : top[0];
  for (int j = 1; j < 16; j++) top[0] = top[j] > top[0] ? top[j] : top[0];
  return top[0];
}

// scores (rows, s), scale; row r of a block of t sees s - t + 1 + r % t keys → probabilities, zero beyond; n: rows, t, s
KERNEL(causal_softmax_forward) {
  const int64_t t = n[1], s = n[2];
  const float scale = F(1)[0];
  for (int64_t row = begin; row < end; row++) {
    const int64_t seen = s - t + 1 + row % t;
    const float *restrict x = F(0) + row * s;
    float *restrict p = F(2) + row * s;
    float top = largest(x, seen), sum = 0;
    for (int64_t i = 0; i < seen; i++) { p[i] = fast_exp(scale * (x[i] - top)); sum += p[i]; }
    float inverse = 1.0f / sum;
    for (int64_t i = 0; i < seen; i++) p[i] *= inverse;
    memset(p + seen, 0, (s - seen) * sizeof(float));
  }
}

// probabilities, their gradients, scale → gradients of the scores
KERNEL(causal_softmax_backward) {
  const int64_t t = n[1], s = n[2];
  const float scale = F(2)[0];
  for (int64_t row = begin; row < end; row++) {
    const int64_t seen = s - t + 1 + row % t;
    const float *restrict p = F(0) + row * s, *restrict dp = F(1) + row * s;
    float *restrict dx = F(3) + row * s;
    float dot = 0;
    for (int64_t i = 0; i < seen; i++) dot += p[i] * dp[i];
    for (int64_t i = 0; i < seen; i++) dx[i] = scale * p[i] * (dp[i] - dot);
    memset(dx + seen, 0, (s - seen) * sizeof(float));
  }
}

// ---- loss -------------------------------------------------------------------------------------------------------

// logits (N, V), ids, cap → loss (N,) and logsumexp (N,). Capped logits are below the cap, so that subtracting it does
// what subtracting their maximum does elsewhere. n: rows, V
KERNEL(cross_entropy_forward) {
  const int64_t V = n[1];
  const float cap = F(2)[0];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * V;
    float sum = 0;
    for (int64_t i = 0; i < V; i++) sum += fast_exp(cap * fast_tanh(x[i] / cap) - cap);
    float lse = cap + logf(sum);
    F(3)[row] = lse - cap * fast_tanh(x[I(1)[row]] / cap);
    F(4)[row] = lse;
  }
}

// logits, ids, cap, logsumexp, gradient of the loss (N,) → gradient of the logits
KERNEL(cross_entropy_backward) {
  const int64_t V = n[1];
  const float cap = F(2)[0];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * V, lse = F(3)[row], g = F(4)[row];
    float *restrict dx = F(5) + row * V;
    const int32_t target = I(1)[row];
    for (int64_t i = 0; i < V; i++) {
      float t = fast_tanh(x[i] / cap);
      dx[i] = fast_exp(cap * t - lse) * (1 - t * t) * g;
    }
    float t = fast_tanh(x[target] / cap);
    dx[target] -= (1 - t * t) * g;
  }
}

// logits (N, V) of any size, ids → loss (N,); n: rows, V
KERNEL(plain_cross_entropy) {
  const int64_t V = n[1];
  for (int64_t row = begin; row < end; row++) {
    const float *restrict x = F(0) + row * V, top = largest(x, V);
    float sum = 0;
    for (int64_t i = 0; i < V; i++) sum += fast_exp(x[i] - top);
    F(2)[row] = top + logf(sum) - x[I(1)[row]];
  }
}

// logits, cap → cap · tanh(logits / cap); elements
KERNEL(softcap_forward) {
  const float *restrict x = F(0), cap = F(1)[0];
  float *restrict y = F(2);
  for (int64_t i = begin; i < end; i++) y[i] = cap * fast_tanh(x[i] / cap);
}

// capped logits, their gradient, cap → gradient of the logits
KERNEL(softcap_backward) {
  const float *restrict y = F(0), *restrict dy = F(1), cap = F(2)[0];
  float *restrict dx = F(3);
  for (int64_t i = begin; i < end; i++) dx[i] = dy[i] * (1 - y[i] * y[i] / (cap * cap));
}

// ---- optimizer: elements ----------------------------------------------------------------------------------------

// p, gradient, m, v, (lr, beta1, beta2, 1 - beta1^step, 1 - beta2^step, eps) → p, m, v
KERNEL(adamw) {
  const float *restrict p = F(0), *restrict g = F(1), *restrict m = F(2), *restrict v = F(3), *restrict now = F(4);
  const float lr = now[0], beta1 = now[1], beta2 = now[2], correct1 = 1 / now[3], correct2 = 1 / now[4], eps = now[5];
  float *restrict p_ = F(5), *restrict m_ = F(6), *restrict v_ = F(7);
  for (int64_t i = begin; i < end; i++) {
    m_[i] = beta1 * m[i] + (1 - beta1) * g[i];
    v_[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    p_[i] = p[i] - lr * m_[i] * correct1 / (sqrtf(v_[i] * correct2) + eps);
  }
}

// momentum, gradient, (mu) → momentum, update
KERNEL(nesterov) {
  const float *restrict m = F(0), *restrict g = F(1), mu = F(2)[0];
  float *restrict m_ = F(3), *restrict update = F(4);
  for (int64_t i = begin; i < end; i++) {
    m_[i] = mu * m[i] + (1 - mu) * g[i];
    update[i] = (1 - mu) * g[i] + mu * m_[i];
  }
}

// p, update, scale of each row or column, (lr, decay) → p; n: by row?, columns, rows of a matrix
KERNEL(cautious_step) {
  const int64_t by_row = n[0], columns = n[1], rows = n[2];
  const float *restrict p = F(0), *restrict update = F(1), *restrict scale = F(2), lr = F(3)[0], decay = F(3)[1];
  float *restrict p_ = F(4);
  for (int64_t i = begin; i < end;) {  // row by row, as far as this thread's part goes
    const int64_t row = i / columns, stop = (row + 1) * columns < end ? (row + 1) * columns : end;
    const float *restrict of_columns = scale + row / rows * columns - row * columns, of_row = scale[by_row ? row : 0];
    for (; i < stop; i++) {
      float step = update[i] * (by_row ? of_row : of_columns[i]);
      p_[i] = p[i] - lr * (step + (step * p[i] >= 0 ? decay * p[i] : 0));
    }
  }
}
