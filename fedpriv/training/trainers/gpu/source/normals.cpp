// Gaussian noise that is a function of a key and counters, with the bits of fedpriv.training.trainers.gpu.normals on the
// processor: every operation is rounded by itself, so this is compiled without fused multiply-adds.

typedef unsigned long long u64;

// to[i] += deviation * normal number i, i < n. key, counter: of numpy's Philox, whose next four words are those of
// counter + 1.
struct Noise {
  double* to;
  double deviation;
  u64 n, key[2], counter[4];
};

#if defined(__CUDACC__)
#define INSIDE __device__ __forceinline__
INSIDE u64 high(u64 a, u64 b) { return __umul64hi(a, b); }
#else
#include <cmath>
#define INSIDE static inline
INSIDE u64 high(u64 a, u64 b) { return u64((unsigned __int128)a * b >> 64); }
#endif

// Philox-4x64-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011): four words for counter + ahead.
INSIDE void philox(const Noise& noise, u64 ahead, u64 (&words)[4]) {
  u64 key[2] = {noise.key[0], noise.key[1]};
  u64 carry = ahead;
  for (int i = 0; i < 4; ++i) {
    words[i] = noise.counter[i] + carry;
    carry = words[i] < carry;
  }
  for (int round = 0; round < 10; ++round) {
    const u64 a = words[0], c = words[2];
    const u64 one = 0xD2E7470EE14C6C93, two = 0xCA5A826395121157;
    const u64 first = high(two, c) ^ words[1] ^ key[0], third = high(one, a) ^ words[3] ^ key[1];
    words[0] = first, words[1] = two * c, words[2] = third, words[3] = one * a;
    key[0] += 0x9E3779B97F4A7C15, key[1] += 0xBB67AE8584CAA73B;
  }
}

template <int N>
INSIDE double polynomial(const double (&factors)[N], double x) {
  double sum = factors[N - 1];
  for (int i = N - 2; i >= 0; --i) sum = sum * x + factors[i];
  return sum;
}

// ln x of a normal number x > 0: x = m 2^e with m around 1, and ln m = 2 artanh((m - 1) / (m + 1)).
INSIDE double logarithm(double x) {
  int e;
  double m = frexp(x, &e);
  if (m < 0.70710678118654757) m = m * 2, e = e - 1;
  const double s = (m - 1) / (m + 1);
  const double series[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                           1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  return double(e) * 0.69314718055994529 + s * 2 * polynomial(series, s * s);
}

// The normal number below which a uniform number of the word's first 52 bits lies: M. Wichura, Algorithm AS 241 (Applied
// Statistics 37, 1988), PPND16.
INSIDE double normal(u64 word) {
  const double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
                      4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3};
  const double b[] = {1.0,
                      4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                      2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3};
  const double c[] = {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                      3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                      2.27238449892691845833e-2, 7.74545014278341407640e-4};
  const double d[] = {1.0,
                      2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                      1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                      1.05075007164441684324e-9};
  const double e[] = {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                      2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                      2.71155556874348757815e-5, 2.01033439929228813265e-7};
  const double f[] = {1.0,
                      5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                      7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                      2.04426310338993978564e-15};
  const double u = (double(word >> 12) + 0.5) * 2.220446049250313e-16, q = u - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  double r = sqrt(-logarithm(q < 0 ? u : 1 - u));
  double size;
  if (r <= 5) {
    r = r - 1.6;
    size = polynomial(c, r) / polynomial(d, r);
  } else {
    r = r - 5;
    size = polynomial(e, r) / polynomial(f, r);
  }
  return q < 0 ? -size : size;
}

INSIDE void add_four(const Noise& noise, u64 four) {
  u64 words[4];
  philox(noise, four + 1, words);
  for (u64 i = 0; i < 4 && 4 * four + i < noise.n; ++i) {
    const double own = normal(words[i]) * noise.deviation;
    noise.to[4 * four + i] = noise.to[4 * four + i] + own;
  }
}

#if defined(__CUDACC__)

extern "C" __global__ void add_noise(const Noise noise) {
  const u64 threads = u64(gridDim.x) * blockDim.x;
  for (u64 four = u64(blockIdx.x) * blockDim.x + threadIdx.x; 4 * four < noise.n; four += threads) add_four(noise, four);
}

#else

extern "C" void add_noise(const Noise* noise) {
  for (u64 four = 0; 4 * four < noise->n; ++four) add_four(*noise, four);
}

#endif
