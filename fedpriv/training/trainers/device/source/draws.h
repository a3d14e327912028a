// Random numbers that are functions of keys and counters, with the bits of fedpriv.util.streams and random_words.
#pragma once
#include "platform.h"

constexpr u64 GAMMA = 0x9E3779B97F4A7C15;

INSIDE u64 mix64(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

INSIDE u64 branch(u64 key, u64 counter) { return mix64(key + GAMMA * (counter + 1)); }

// The word of a row's feature; row_key: mix64(key + branch(name, row)).
INSIDE int word_of(u64 row_key, int feature) {
  const u64 pair = mix64(row_key + GAMMA * u64(feature / 2 + 1));
  return int(unsigned(feature % 2 ? pair >> 32 : pair));
}
