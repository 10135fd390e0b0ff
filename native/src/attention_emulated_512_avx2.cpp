#include "attention_rows.h"
#include "emulated_avx2.h"

namespace noria {
namespace {

struct EmulatedLanes16 {
  using Floats = F8x2;
  static constexpr int kEights = 2;

  template <class Make>
  [[gnu::always_inline]] static F8x2 of(Make make) {
    return {make(0), make(1)};
  }
  static F8x2 load(const float* at) { return F8x2::load(at); }
  static F8x2 halves(const uint16_t* at) { return {Lanes8::halves(at), Lanes8::halves(at + 8)}; }
  static F8x2 codes(const int8_t* at) { return {Lanes8::codes(at), Lanes8::codes(at + 8)}; }
};

}  // namespace

constexpr AttentionTable kAttentionEmulated512 = attention_of<WideWidths<EmulatedLanes16>>();

}  // namespace noria
