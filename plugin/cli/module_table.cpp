#include "plugin/cli/module_table.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "registry/code_place.hpp"
#include "registry/plan.hpp"
#include "registry/text_table.hpp"

namespace fsdp2::cli {
namespace {

/// "`a`, `b`, `c` and 7 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "`" : ", `") + names[i] + "`";
  return names.size() <= kMost ? text : text + " and " + std::to_string(names.size() - kMost) + " more";
}

std::string number_at_end(const std::string& name) {
  return name.substr(name.find_last_not_of("0123456789") + 1);
}

/// Whether `b` is the name that follows `a`: "layer3" after "layer2".
bool follows(const std::string& a, const std::string& b) {
  constexpr size_t kDigits = 9;
  const std::string number_a = number_at_end(a);
  const std::string number_b = number_at_end(b);
  if (number_a.empty() || number_b.empty() || number_a.size() > kDigits || number_b.size() > kDigits) return false;
  const bool same_word = a.substr(0, a.size() - number_a.size()) == b.substr(0, b.size() - number_b.size());
  return same_word && std::stol(number_a) + 1 == std::stol(number_b);
}

class Table {
 public:
  Table(const ModelFacts& facts, std::span<const ModuleSummary> summaries, const TableLimits& limits)
      : facts_(facts), tree_(facts.tree), summaries_(summaries), limits_(limits) {}

  std::string text() {
    rows_.push_back({"module", "class", "own", "in all", "bytes", "dtype", "buffers", "remarks"});
    add(0, 0, 1);
    if (summaries_[0].buffer_bytes == 0) {
      for (TextRow& row : rows_) row.erase(row.begin() + kBuffers);
    }
    std::string text = aligned(
        rows_, summaries_[0].buffer_bytes == 0 ? std::set<size_t>{2, 3, 4} : std::set<size_t>{2, 3, 4, kBuffers});
    if (collapsed_) text += "A line with `n x` stands for n equal modules, with the numbers of each.\n";
    return text;
  }

 private:
  static constexpr size_t kBuffers = 6;

  void add(size_t m, size_t depth, size_t equal) {
    const TreeModule& module = tree_.modules[m];
    const ModuleSummary& summary = summaries_[m];
    const bool opens = module.object == m && !(limits_.depth && depth >= *limits_.depth);
    std::string name = m == 0 ? "(root)" : std::string(2 * depth, ' ') + last_name(module.path);
    std::string class_name = module.class_name;
    if (equal > 1) {
      name += " .. " + last_name(tree_.modules[last_of(m, equal)].path);
      class_name = std::to_string(equal) + " x " + class_name;
      collapsed_ = true;
    }
    std::string remarks;
    for (const std::string& mark : marks(m, opens)) remarks += (remarks.empty() ? "" : "; ") + mark;
    rows_.push_back({name, class_name, count_text(summary.own_elements), count_text(summary.elements),
                     bytes_text(summary.bytes), dtypes_text(summary.dtypes),
                     summary.buffer_bytes == 0 ? "" : bytes_text(summary.buffer_bytes), remarks});
    if (!opens) return;
    for (size_t i = 0; i < summary.children.size();) {
      const size_t run = equal_from(summary.children, i);
      add(summary.children[i], depth + 1, run);
      i += run;
    }
  }

  size_t last_of(size_t m, size_t equal) const {
    const auto& siblings = summaries_[*tree_.modules[m].parent].children;
    return *(std::find(siblings.begin(), siblings.end(), m) + static_cast<std::ptrdiff_t>(equal - 1));
  }

  /// How many children from the i-th on are equal and named by numbers in a row.
  size_t equal_from(const std::vector<size_t>& children, size_t i) const {
    if (limits_.all) return 1;
    size_t run = 1;
    std::string first;
    for (; i + run < children.size(); ++run) {
      const std::string& before = tree_.modules[children[i + run - 1]].path;
      const TreeModule& next = tree_.modules[children[i + run]];
      if (next.class_name != tree_.modules[children[i]].class_name || !follows(before, next.path)) break;
      if (first.empty()) first = content(children[i], tree_.modules[children[i]].path);
      if (content(children[i + run], next.path) != first) break;
    }
    return run;
  }

  /// All that rows say of a module, with names from `top` on. Equal for modules that need one row.
  std::string content(size_t m, const std::string& top) const {
    const auto relative = [&](const std::string& path) {
      return path == top ? "." : path.starts_with(top + ".") ? path.substr(top.size()) : "/" + path;
    };
    const TreeModule& module = tree_.modules[m];
    std::string text = relative(module.path) + "|" + module.class_name + (module.has_forward ? "f" : "") +
                       (module.called ? "c" : "") + (module.frozen ? "z" : "") + (facts_.unfit[m].empty() ? "" : "u") +
                       std::to_string(facts_.buffer_bytes[m]) + relative(tree_.modules[module.object].path);
    for (const NamedParameter& named : summaries_[m].own) {
      const TreeParameter& parameter = tree_.parameters[named.parameter];
      text += "|" + relative(named.name) + std::string(name_of(parameter.dtype)) + (parameter.trainable ? "t" : "");
      for (const int64_t size : parameter.shape) text += "," + std::to_string(size);
      if (parameter.names.size() > 1) text += "=" + relative(parameter.names.front());
      for (const size_t reader : parameter.readers) text += "<" + relative(tree_.modules[reader].path);
    }
    for (const size_t child : summaries_[m].children) text += "{" + content(child, top) + "}";
    return text;
  }

  std::vector<std::string> marks(size_t m, bool opens) const {
    const TreeModule& module = tree_.modules[m];
    const ModuleSummary& summary = summaries_[m];
    if (module.object != m) return {"the same module as `" + tree_.modules[module.object].path + "`"};
    std::vector<std::string> marks;
    if (!module.has_forward) marks.emplace_back(summary.children.empty() ? "no forward" : "container");
    if (module.frozen) marks.push_back("frozen by torch.jit.freeze" + in_brackets(*module.frozen));
    if (!module.called && module.has_forward) marks.emplace_back("not called");
    if (!facts_.unfit[m].empty()) marks.push_back(facts_.unfit[m]);
    add_frozen(summary, opens, marks);
    // One mark for all parameters of which the same is to be said.
    std::vector<std::pair<std::string, std::string>> said;
    const auto say = [&](const std::string& name, const std::string& what) {
      const auto known = std::find_if(said.begin(), said.end(), [&](const auto& mark) { return mark.second == what; });
      if (known == said.end()) {
        said.emplace_back(name, what);
      } else {
        known->first += ", " + name;
      }
    };
    for (const NamedParameter& named : summary.own) {
      const std::vector<std::string> tied = tied_names(tree_, named, m);
      if (!tied.empty()) say(last_name(named.name), "tied with " + some_of(tied));
      std::vector<std::string> readers;
      for (const size_t reader : other_readers(tree_, named, m)) {
        readers.push_back(reader == 0 ? "(root)" : tree_.modules[reader].path);
      }
      if (!readers.empty()) say(last_name(named.name), "read by " + some_of(readers));
    }
    for (const auto& [names, what] : said) marks.push_back(names + " " + what);
    return marks;
  }

  void add_frozen(const ModuleSummary& summary, bool opens, std::vector<std::string>& marks) const {
    if (summary.elements == summary.trainable_elements) return;
    if (summary.trainable_elements == 0) {
      marks.emplace_back("frozen");
      return;
    }
    std::vector<std::string> names;
    for (const NamedParameter& named : summary.own) {
      if (!tree_.parameters[named.parameter].trainable) names.push_back(last_name(named.name));
    }
    if (!names.empty()) marks.push_back("frozen: " + some_of(names));
    if (names.empty() && !opens) marks.emplace_back("partly frozen");
  }

  const ModelFacts& facts_;
  const ModuleTree& tree_;
  std::span<const ModuleSummary> summaries_;
  TableLimits limits_;
  std::vector<TextRow> rows_;
  bool collapsed_ = false;
};

}  // namespace

std::string module_table(const ModelFacts& facts, const std::vector<ModuleSummary>& summaries,
                         const TableLimits& limits) {
  return Table(facts, summaries, limits).text();
}

std::string dtypes_text(const std::set<DType>& dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += (text.empty() ? "" : ", ") + std::string(name_of(dtype));
  return text;
}

}  // namespace fsdp2::cli
