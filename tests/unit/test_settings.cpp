// What the readers of hosts' files have in common: places, limits, and hostile input that ends soon.
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "adapters/adapters.hpp"
#include "adapters/config.hpp"
#include "adapters/json_settings.hpp"
#include "adapters/yaml_block.hpp"
#include "registry/host_text.hpp"
#include "translations.hpp"

namespace fsdp2 {
namespace {

using test::error_of;
using test::repeated;
using test::text_of;
using Kind = Setting::Kind;

Setting json(const std::string& text, JsonExtras extras = JsonExtras::kComments) {
  return read_json(text, "a.json", extras);
}

std::string json_fault(const std::string& text, JsonExtras extras = JsonExtras::kComments) {
  return text_of([&] { json(text, extras); });
}

TEST(JsonSettings, PlacesOfKeysAndValues) {
  const Setting root = json("{\n  \"a\": 1, \"b\" :\n    {\"c\": [\"x,]\", 2], \"d\\\"}\": \"q\\\\\"},\n\"e\":true}");
  EXPECT_EQ(place(find_member(root, "a")->key_source), "a.json:2:3: ");
  EXPECT_EQ(place(find_member(root, "a")->source), "a.json:2:8: ");
  const Setting& inner = *find_member(root, "b");
  EXPECT_EQ(place(inner.source), "a.json:3:5: ");
  EXPECT_EQ(place(find_member(inner, "c")->source), "a.json:3:11: ");
  EXPECT_EQ(find_member(inner, "c")->list, (std::vector<std::string>{"x,]", "2"}));
  EXPECT_EQ(place(find_member(inner, "d\"}")->key_source), "a.json:3:23: ");
  EXPECT_EQ(find_member(inner, "d\"}")->text, "q\\");
  EXPECT_EQ(place(find_member(root, "e")->source), "a.json:4:5: ");
}

TEST(JsonSettings, Types) {
  const Setting root =
      json(R"({"a": null, "b": false, "c": -7, "d": 5e8, "e": 18446744073709551615, "f": {}, "g": []})");
  EXPECT_EQ(find_member(root, "a")->kind, Kind::kNull);
  EXPECT_EQ(find_member(root, "b")->text, "False");
  EXPECT_EQ(find_member(root, "c")->whole, -7);
  EXPECT_EQ(find_member(root, "d")->real, 5e8);
  EXPECT_EQ(find_member(root, "d")->text, "5e8");
  EXPECT_EQ(find_member(root, "e")->kind, Kind::kReal);
  EXPECT_EQ(as_int(*find_member(root, "e")), std::nullopt);
  EXPECT_EQ(find_member(root, "f")->kind, Kind::kMap);
  EXPECT_FALSE(is_truthy(*find_member(root, "f")));
  EXPECT_FALSE(is_truthy(*find_member(root, "g")));
  EXPECT_EQ(json("7").whole, 7);
}

TEST(JsonSettings, CommentsKeepPlaces) {
  const std::string text =
      "\xEF\xBB\xBF{ // first\n  # second {\n  \"a\": /* , } */ \"//x#\", \"b\": [1, 2, /* c */ ],\n  \"c\": 3, // "
      "last\n}";
  const Setting root = json(text);
  EXPECT_EQ(find_member(root, "a")->text, "//x#");
  EXPECT_EQ(place(find_member(root, "a")->source), "a.json:3:18: ");
  EXPECT_EQ(find_member(root, "b")->list.size(), 2U);
  EXPECT_EQ(place(find_member(root, "c")->source), "a.json:4:8: ");
  EXPECT_EQ(json_fault("{\"a\": 1,}", JsonExtras::kNone).find("a.json:1:9: this is not JSON: "), 0U);
  EXPECT_EQ(json_fault("{} // c", JsonExtras::kNone).find("a.json:1:4: this is not JSON: "), 0U);
  EXPECT_EQ(json_fault("\xEF\xBB\xBF{}", JsonExtras::kNone),
            "a.json:1:1: the file begins with a byte order mark, which JSON does not have");
  EXPECT_EQ(json_fault("{\"a\": /* 1}").find("a.json:1:7: this is not JSON: "), 0U);
}

TEST(JsonSettings, FaultsSayWhere) {
  EXPECT_EQ(json_fault("{\n \"a\": tru }"),
            "a.json:2:10: this is not JSON: syntax error while parsing value - invalid literal");
  for (const char* text :
       {"", "{", "[1", "{\"a\"}", "{\"a\": NaN}", "{\"a\": 1e999}", "{} {}", "'a'", "{\"a\": \"\n\"}"}) {
    EXPECT_EQ(json_fault(text).find("a.json:"), 0U) << text;
  }
}

TEST(JsonSettings, TheLastOfTwoCountsUnlessRefused) {
  const Setting root = json("{\"a\": {\"x\": 1,\n \"x\": 2}}");
  EXPECT_EQ(find_member(*find_member(root, "a"), "x")->whole, 2);
  EXPECT_EQ(text_of([&] { refuse_duplicate_keys(root); }), "a.json:2:2: `x` stands twice in one map");
}

TEST(Settings, OnlyTextIsRead) {
  for (const char* bytes : {"a\xFF", "a\xC0\x80", "a\xED\xA0\x80", "a\xE2\x82", "a\xF5\x80\x80\x80"}) {
    EXPECT_EQ(json_fault(bytes), "a.json:1:2: this is not text in UTF-8");
    EXPECT_EQ(text_of([&] { read_yaml(bytes, "a.yaml"); }), "a.yaml:1:2: this is not text in UTF-8");
  }
  const std::string utf16("{\0\"\0", 4);
  EXPECT_EQ(json_fault("\n" + utf16), "a.json:2:2: this is not text in UTF-8");
  EXPECT_EQ(json("\"\xE2\x82\xAC\xF0\x9F\x98\x80\"").text, "\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(Settings, MessagesAreTextToo) {
  const std::string text = text_of([] { read_yaml("a: \"\\\xC3\xA4\"", "a.yaml"); });
  EXPECT_TRUE(text.starts_with("a.yaml:1:")) << text;
  EXPECT_TRUE(text.ends_with(": this is not YAML: unknown escape character: ?")) << text;
}

TEST(Settings, NoNullCharacters) {
  const std::string fault = "a text has a null character";
  EXPECT_EQ(json_fault("{\"a\": \"x\\u0000\"}"), "a.json:1:7: " + fault);
  EXPECT_EQ(json_fault("{\"a\": [\"x\\u0000\"]}"), "a.json:1:8: " + fault);
  EXPECT_EQ(json_fault("{\n\"x\\u0000\": 1}"), "a.json:2:1: " + fault);
  for (const char* text : {"a: \"x\\0\"", "\"x\\x00\": 1", "a: [\"\\u0000\"]"}) {
    EXPECT_NE(text_of([&] { read_yaml(text, "a.yaml"); }).find(fault), std::string::npos) << text;
  }
}

TEST(Settings, Limits) {
  const std::string deep = "maps and lists lie deeper in one another than 64 levels";
  EXPECT_NE(json_fault(repeated("[", 100'000)).find(deep), std::string::npos);
  EXPECT_NE(json_fault(repeated("{\"a\":", 500'000 / 5)).find(deep), std::string::npos);
  EXPECT_NE(text_of([&] { read_yaml(repeated("[", 80) + repeated("]", 80), "a.yaml"); }).find(deep), std::string::npos);
  EXPECT_NO_THROW(json(repeated("[", 60) + repeated("]", 60)));
  const std::string many = "there are more than 10000 keys and list elements";
  EXPECT_NE(json_fault("[" + repeated("1,", 20'000) + "1]").find(many), std::string::npos);
  EXPECT_NE(json_fault("{\"" + repeated("k", 300) + "\": 1}").find("a key is longer than 256 bytes"),
            std::string::npos);
  EXPECT_EQ(json_fault(repeated(" ", kMostHostBytes + 1)),
            "a.json: the text is larger than 1 MiB, which no configuration is");
}

TEST(Settings, AnchorsDoNotExplode) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + repeated(last + ", ", 9) + last + "]\n";
  }
  EXPECT_NE(text_of([&] { read_yaml(bomb, "a.yaml"); }).find("more than 10000"), std::string::npos);
  std::string maps = "b0: &b0 {x: 1}\n";
  for (int i = 1; i < 30; ++i) {
    const std::string last = "*b" + std::to_string(i - 1);
    maps += "b" + std::to_string(i) + ": &b" + std::to_string(i) + " {<<: [" + last + ", " + last + "]}\n";
  }
  EXPECT_NE(text_of([&] { read_yaml(maps, "a.yaml"); }).find("more than 10000"), std::string::npos);
  EXPECT_NE(text_of([&] { read_yaml("a: &a [*a]\n", "a.yaml"); }).find("a.yaml:"), std::string::npos);
}

/// Whatever it is, it ends, and soon.
TEST(Settings, HostileTextEndsSoon) {
  const size_t size = kMostHostBytes / 4;  // the sanitizers take their time
  std::vector<std::string> texts;
  for (const char* part : {"[",   "{",      "{a: ", "- ",      "? ",   "a: ",   "&a ", "*a ",      "!a ",
                           "\"",  "'",      "|\n",  ">\n",     "[]",   "a,",    "\n",  " ",        "#",
                           "/*",  "//",     "%",    "- - ",    "a:\n", "[a: ",  "{? ", "\"\\",     "1",
                           "-1e", "k: v\n", ",",    "{\"a\":", "<<: ", "---\n", "\t",  "&a [*a, ", "}"}) {
    texts.push_back(repeated(part, size / std::string(part).size()));
  }
  std::string keys = "{";
  for (int i = 0; i < 60'000; ++i) keys += "\"k" + std::to_string(i) + "\": 1, ";
  texts.push_back(keys + "}");
  for (const std::string& text : texts) {
    for (const char* dialect : {"accelerate", "deepspeed"}) {  // YAML, and JSON with comments
      const auto begin = std::chrono::steady_clock::now();
      try {
        find_translation(dialect)(text, "hostile", {});
      } catch (const Error& error) {
        EXPECT_LT(std::string(error.what()).size(), 1024U);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(took.count(), 10) << dialect << ": " << text.substr(0, 10);
    }
  }
}

TEST(Settings, FilesAreReadUpToALimit) {
  const std::string folder = testing::TempDir();
  const std::string large = folder + "fsdp2_large.json";
  test::write_file(large, "{}");
  std::filesystem::resize_file(large, 100U << 20U);
  const auto load = [&](const std::string& file) {
    return text_of([&] { load_config_text("[fsdp]\ndialect = 'deepspeed'\nconfig = '" + file + "'\n", "t.toml"); });
  };
  EXPECT_EQ(load(large), "t.toml:3:10: `" + large + "` is larger than 1 MiB, which no configuration is");
  EXPECT_EQ(load("/dev/zero"), "t.toml:3:10: `/dev/zero` is larger than 1 MiB, which no configuration is");
  EXPECT_EQ(load("/nowhere.json"), "t.toml:3:10: cannot read `/nowhere.json`");
  EXPECT_EQ(load(folder.substr(0, folder.size() - 1)),
            "t.toml:3:10: `" + folder.substr(0, folder.size() - 1) + "` is a folder, not a file");
  std::remove(large.c_str());
}

TEST(HostKeys, TypesOfValues) {
  const std::vector<HostKey> keys{{"a", "true"}, {"b", "False"}, {"c", "12"},           {"d", "1.5"},
                                  {"e", "None"}, {"f", "bf16"},  {"g", "\"quoted 1\""}, {"h", "[\"x\", \"y\"]"},
                                  {"m.x", "1"},  {"m.y", "2"},   {"VAR_1", "true"},     {"i", "1,2"},
                                  {"j", "'12'"}};
  const Setting root = settings_of(keys, "keys");
  EXPECT_TRUE(find_member(root, "a")->flag);
  EXPECT_EQ(find_member(root, "b")->kind, Kind::kBool);
  EXPECT_EQ(find_member(root, "c")->whole, 12);
  EXPECT_EQ(find_member(root, "d")->real, 1.5);
  EXPECT_EQ(find_member(root, "e")->kind, Kind::kNull);
  EXPECT_EQ(find_member(root, "f")->text, "bf16");
  EXPECT_EQ(find_member(root, "g")->text, "quoted 1");
  EXPECT_EQ(find_member(root, "h")->list, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(find_member(*find_member(root, "m"), "y")->whole, 2);
  EXPECT_EQ(find_member(*find_member(root, "m"), "y")->source.key, "m.y");
  EXPECT_EQ(find_member(root, "VAR_1")->kind, Kind::kText);
  EXPECT_EQ(find_member(root, "i")->text, "1,2");
  EXPECT_EQ(find_member(root, "j")->kind, Kind::kText);
  EXPECT_EQ(host_key_of("a=b=c").value, "b=c");
  EXPECT_EQ(text_of([] { host_key_of("=x"); }), "a host's key: `=x` is not written name=value");
  EXPECT_EQ(text_of([] { host_key_of("\xFF=x", "keys[3]"); }), "keys[3]:1:1: this is not text in UTF-8");
}

TEST(HostKeys, NamesHaveNoEmptyParts) {
  for (const char* name : {".a", "a.", "a..b"}) {
    EXPECT_EQ(text_of([&] {
                settings_of(std::vector<HostKey>{{name, "1"}}, "keys");
              }),
              "keys: `" + std::string(name) + "` is no key: there is no name before or after a dot");
  }
}

TEST(HostKeys, Limits) {
  EXPECT_NE(text_of([] {
              settings_of(std::vector<HostKey>{{repeated("a.", 100) + "b", "1"}}, "keys");
            }).find("64 levels"),
            std::string::npos);
  EXPECT_NE(text_of([] {
              settings_of(std::vector<HostKey>(20'000, HostKey{"a", "1"}), "keys");
            }).find("10000"),
            std::string::npos);
  EXPECT_NE(text_of([] {
              settings_of(std::vector<HostKey>{{"a", repeated("x", 2U << 20U)}}, "keys");
            }).find("larger"),
            std::string::npos);
  EXPECT_EQ(text_of([] {
              settings_of(std::vector<HostKey>{{"a", "\xFF"}}, "keys");
            }),
            "keys: a:1:1: this is not text in UTF-8");
  EXPECT_EQ(text_of([] {
              settings_of(std::vector<HostKey>{{"a\xFF", "1"}}, "keys");
            }),
            "keys:1:2: this is not text in UTF-8");
  const Setting deep = settings_of(std::vector<HostKey>{{"a", "{" + repeated("a.", 400'000) + "a = 1}"}}, "keys");
  EXPECT_EQ(find_member(deep, "a")->kind, Kind::kText);  // what is no value is a word
}

TEST(HostKeys, MakeAConfiguration) {
  const std::vector<HostKey> keys{{"zero_optimization.stage", "2"}, {"bf16.enabled", "true"}};
  const Config config = load_config_text("[fsdp]\ndialect = 'deepspeed'\nlayout = 'per_parameter'\n", "t.toml",
                                         std::vector<std::string>{"gradient.clip_norm=2.0"}, keys);
  EXPECT_EQ(config.options.strategy, "shard_grad_op");
  EXPECT_EQ(config.options.mixed_precision.param, DType::kBFloat16);
  EXPECT_EQ(config.options.gradient.clip_norm, 2.0);
  EXPECT_TRUE(config.options.dialect.empty());
  const auto fault = [](const std::string& toml, const std::vector<HostKey>& list) {
    return error_of([&] { load_config_text(toml, "t.toml", {}, list); });
  };
  EXPECT_STREQ(fault("[fsdp]\ndialect = 'deepspeed'\nconfig = 'a.json'\n", keys).what(),
               "t.toml:3:10: `config` cannot stand beside a list of the host's keys: leave one of them out");
  EXPECT_EQ(std::string(fault("[fsdp]\ndialect = 'deepspeeed'\n", keys).what())
                .find("t.toml:2:11: no dialect is called `deepspeeed`"),
            0U);
  EXPECT_STREQ(fault("[fsdp]\ndialect = 'lightning'\n", keys).what(),
               "t.toml:2:11: dialect `lightning` takes a file, not a list of keys, which are for \"accelerate\", "
               "\"transformers\", \"deepspeed\", \"torch_fsdp1\"");
  EXPECT_STREQ(fault("[fsdp]\ndialect = 'deepspeed'\n", {{"zero_optimization.stage", "4"}}).what(),
               "the host's keys: `zero_optimization.stage=4` must be 0, 1, 2 or 3");
}

TEST(HostKeys, NeedADialect) {
  const auto fault = [](const std::vector<HostKey>& keys) {
    return error_of([&] { load_config_text("", "t.toml", {}, keys); });
  };
  const std::string needs =
      "a list of the host's keys needs `dialect`, which says whose they are: one of \"accelerate\", "
      "\"transformers\", \"deepspeed\", \"torch_fsdp1\"";
  EXPECT_EQ(fault({}).what(), needs);
  EXPECT_EQ(fault({{"reshard_after_forward", "true"}}).what(), needs) << "several have it";
  const Error zero = fault({{"zero_optimization.stage", "2"}, {"bf16.enabled", "true"}});
  EXPECT_EQ(zero.what(),
            needs + "; they look like those of deepspeed (the key `zero_optimization`, the key `bf16.enabled`)");
  EXPECT_EQ(zero.details().key, "dialect");
  EXPECT_EQ(zero.details().nearest, "deepspeed");
  EXPECT_EQ(fault({{"fsdp_version", "2"}}).details().nearest, "accelerate");
  EXPECT_EQ(fault({{"FSDP_VERSION", "2"}}).details().nearest, "accelerate");
  EXPECT_EQ(fault({{"transformer_layer_cls_to_wrap", "['A']"}}).details().nearest, "transformers");
  EXPECT_EQ(fault({{"device_mesh", "None"}}).details().nearest, "torch_fsdp1");
}

}  // namespace
}  // namespace fsdp2
