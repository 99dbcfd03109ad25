// Lines NAME=VALUE as users have them in files of variables. What a shell makes of such lines is the reference.
#include "adapters/key_list.hpp"

#include "helpers.hpp"

namespace fsdp2 {
namespace {

using test::text_of;

std::string value_of_line(const std::string& line) {
  const std::vector<HostKey> keys = read_key_list(line, "a.env");
  EXPECT_EQ(keys.size(), 1U);
  return keys.empty() ? "" : keys[0].value;
}

std::string fault(const std::string& text) {
  return text_of([&] { read_key_list(text, "a.env"); });
}

TEST(KeyList, IsOneWhereAllLinesAre) {
  EXPECT_TRUE(is_key_list("A=1\n\n# c\n  export B = 'x'\r\nfsdp_config.version=2"));
  for (const char* other : {"", "\n# nothing\n", "A=1\nb: 2\n", "[fsdp]\nversion = 2\n", "{\"a\": 1}", "--a.b=1", "=1",
                            "1A=2", "A", "key: a=b", "a-b=1"}) {
    EXPECT_FALSE(is_key_list(other)) << other;
  }
}

TEST(KeyList, ValuesOfVariablesAreThoseOfAShell) {
  EXPECT_EQ(value_of_line("export A=1"), "1");
  EXPECT_EQ(value_of_line("A="), "");
  EXPECT_EQ(value_of_line("A=\"two words\"  # comment"), "two words");
  EXPECT_EQ(value_of_line("A=one # comment"), "one");
  EXPECT_EQ(value_of_line("A=one#none"), "one#none");
  EXPECT_EQ(value_of_line("A='head\\..*|$x'"), "head\\..*|$x");
  EXPECT_EQ(value_of_line("A=\"q \\\" \\\\ \\$HOME \\n\""), "q \" \\ $HOME \\n");
  EXPECT_EQ(value_of_line("A=x$"), "x$");
}

TEST(KeyList, ValuesOfKeywordsAreToml) {
  EXPECT_EQ(value_of_line("classes=[\"A#\", \"B\"] # two"), "[\"A#\", \"B\"]");
  EXPECT_EQ(value_of_line("strategy=\"FULL_SHARD\""), "\"FULL_SHARD\"");
  EXPECT_EQ(value_of_line("strategy = FULL_SHARD"), "FULL_SHARD");
}

TEST(KeyList, TheLastOfAVariableCounts) {
  const std::vector<HostKey> keys = read_key_list("A=1\nB=2\nA=3\nk=1\nk=2\n", "a.env");
  ASSERT_EQ(keys.size(), 4U);
  EXPECT_EQ(keys[0].name + keys[0].value, "B2");
  EXPECT_EQ(keys[1].name + keys[1].value, "A3");
  EXPECT_EQ(place(keys[1].source), "a.env:3:1: ");
  EXPECT_EQ(keys[3].value, "2");  // of keywords the dialect decides
}

TEST(KeyList, FaultsSayWhere) {
  EXPECT_EQ(fault("A=1\n  B=\"open\n"), "a.env:2:3: `B` has a quote that is not closed in its line");
  EXPECT_EQ(fault("k='open"), "a.env:1:1: `k` has a quote that is not closed in its line");
  EXPECT_EQ(fault("k=[\"A\",\n"), "a.env:1:1: `k` has a list that is not closed in its line");
  EXPECT_EQ(fault("A='x'y"), "a.env:1:1: `A` goes on after its quotes");
  EXPECT_EQ(fault("\nno equals"), "a.env:2:1: this line is not name=value");
  EXPECT_EQ(fault("A=\xff"), "a.env:1:3: this is not text in UTF-8");
  for (const char* open : {"A=$HOME/x", "A=\"${HOME}\"", "A=$(ls)", "A=`ls`"}) {
    EXPECT_NE(fault(open).find("stands for another value, which is not looked up"), std::string::npos) << open;
  }
  for (const char* bare : {"A=head\\..*", "A=it's", "A=a\"b\""}) {
    EXPECT_NE(fault(bare).find("without quotes around the value"), std::string::npos) << bare;
  }
}

}  // namespace
}  // namespace fsdp2
