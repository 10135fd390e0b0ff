#include "attention_lanes_avx512.h"
#include "attention_rows.h"

namespace noria {

constexpr AttentionTable kAttentionAvx512 = attention_of<WideWidths<Lanes16>>();

}  // namespace noria
