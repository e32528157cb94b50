// SPDX-License-Identifier: Apache-2.0
// What `pawl demo --dir` takes of a folder, and what it says of the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/demo_corpus.h"
#include "tools/demo_folder.h"
#include "tools/demo_hold.h"
#include "tools/temporary_folder.h"

namespace pawl::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

class DemoFolder : public ::testing::Test {
 protected:
  Result<Folder> scan() const {
    return Folder::scan(folder_.path(), [] { return true; });
  }
  /// The corpus of the folder, or why there is none.
  Result<Corpus> read() const {
    const Result<Folder> found = scan();
    if (!found.ok()) return found.status();
    return Corpus::read(*found);
  }
  std::vector<std::string> names(const Folder& found) const {
    std::vector<std::string> names;
    for (const Folder::File& file : found.files) {
      names.push_back(file.path.substr(folder_.path().size() + 1));
    }
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(DemoFolder, FilesOfSubFoldersAndLinksToFilesInTheOrderOfTheirPaths) {
  folder_.write("b", 5000);
  folder_.write("a/deep/z", 5001);
  folder_.write("c", 0);
  std::filesystem::create_symlink("b", folder_.path("link"));
  std::filesystem::create_directory_symlink("..", folder_.path("a/up"));  // would never end
  std::filesystem::create_symlink("nowhere", folder_.path("broken"));
  ASSERT_EQ(::mkfifo(folder_.path("fifo").c_str(), 0600), 0);

  const Result<Folder> found = scan();
  ASSERT_TRUE(found.ok()) << found.status().what();
  EXPECT_THAT(names(*found), ElementsAre("a/deep/z", "b", "link"));
  EXPECT_EQ(found->files[0].bytes, 5001u);
  EXPECT_EQ(found->empty, 1u);
  EXPECT_EQ(found->remarks(), "Files left out: 1 without content.");

  const Result<Corpus> corpus = Corpus::read(*found);
  ASSERT_TRUE(corpus.ok()) << corpus.status().what();
  ASSERT_EQ(corpus->size(), 3u);
  EXPECT_EQ(corpus->wrong_bytes(1, corpus->file(2)), 0u);
  EXPECT_GT(corpus->wrong_bytes(0, corpus->file(1)), 0u);
}

TEST_F(DemoFolder, WhatCannotBeReadIsLeftOutAndSaid) {
  for (const char* name : {"a", "b", "hidden"}) folder_.write(name, 100);
  ASSERT_EQ(::chmod(folder_.path("hidden").c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  // Files are opened as another user, since root may read all.
  const bool root = ::geteuid() == 0;
  if (root) {
    for (const char* name : {"a", "b"}) ASSERT_EQ(::chmod(folder_.path(name).c_str(), 0644), 0);
    ::setfsuid(65534);
  }
  const Result<Folder> found = scan();
  if (root) ::setfsuid(0);
  ASSERT_TRUE(found.ok()) << found.status().what();
  EXPECT_THAT(names(*found), ElementsAre("a", "b"));
  EXPECT_EQ(found->unreadable, 1u);
  EXPECT_EQ(found->remarks(), "Files left out: 1 that cannot be read.");
}

TEST_F(DemoFolder, OfLongFilesTheBeginningAndOfLongFoldersToo) {
  constexpr std::size_t kMiB = 1 << 20;
  for (char name = 'a'; name < 'a' + 16; ++name) {  // 1 GiB with the first two, less one MiB
    folder_.write_sparse(std::string(1, name), (name == 'a' ? 70 : name == 'b' ? 63 : 64) * kMiB);
  }
  folder_.write("q", kMiB);
  folder_.write("r", 1);
  const Result<Folder> found = scan();
  ASSERT_TRUE(found.ok()) << found.status().what();
  EXPECT_EQ(found->files.size(), 17u);
  EXPECT_EQ(found->files[0].bytes, Folder::kFileBytesMax);
  EXPECT_EQ(found->cut, 1u);
  EXPECT_EQ(found->beyond, 1u);
  EXPECT_EQ(found->remarks(),
            "Files left out: 1 beyond 65536 files or 1 GiB in all. Of 1 only the first 64 MiB are "
            "used.");
}

TEST_F(DemoFolder, ThousandsOfFilesAreTakenAndTheLookCanBeInterrupted) {
  for (int i = 0; i < 3000; ++i) folder_.write(std::to_string(i % 7) + "/" + std::to_string(i), 20);
  const Result<Corpus> corpus = read();
  ASSERT_TRUE(corpus.ok()) << corpus.status().what();
  EXPECT_EQ(corpus->size(), 3000u);
  EXPECT_EQ(corpus->total_bytes(), 60'000u);

  int entries = 0;
  const Result<Folder> stopped = Folder::scan(folder_.path(), [&] { return ++entries < 10; });
  EXPECT_EQ(stopped.status().code(), Code::cancelled);
  EXPECT_EQ(entries, 10);
}

TEST_F(DemoFolder, WithoutTwoFilesItSaysWhatToAdd) {
  const auto sentence = [this] { return std::string(read().status().what()); };
  EXPECT_THAT(sentence(), HasSubstr("(0 empty, 0 not readable): add files"));
  folder_.write("one", 100);
  folder_.write("nothing", 0);
  EXPECT_THAT(sentence(), HasSubstr("fewer than two files"));
  EXPECT_THAT(sentence(), HasSubstr("(1 empty, 0 not readable): add files"));
  EXPECT_EQ(read().status().code(), Code::not_found);
}

TEST_F(DemoFolder, FilesThatNoReadCouldMixUpAreRefused) {
  const auto sentence = [this] { return std::string(read().status().what()); };
  folder_.write("tiny", 1);
  folder_.write("large", 1 << 20);
  EXPECT_THAT(sentence(), HasSubstr("no two files that differ have a similar size"));
  std::filesystem::copy_file(folder_.path("large"), folder_.path("the same"));
  EXPECT_THAT(sentence(), HasSubstr("add files of similar size"));
  folder_.write("another", 900 << 10);
  EXPECT_TRUE(read().ok()) << sentence();
}

TEST_F(DemoFolder, LargeFilesMustShowItWhereSmallOnesCannot) {
  const auto settings = [this] {
    const Result<Corpus> corpus = read();
    EXPECT_TRUE(corpus.ok()) << corpus.status().what();
    RowSettings set{};
    if (corpus.ok()) set_files(set, *corpus);
    return set;
  };
  folder_.write("large", 1 << 20);
  folder_.write("another", 900 << 10);
  EXPECT_TRUE(settings().large_only);
  EXPECT_TRUE(settings().large_shows);
  folder_.write("small", 10);
  EXPECT_FALSE(settings().large_only);
  EXPECT_TRUE(settings().large_shows);
  folder_.write("another small", 10);
  EXPECT_FALSE(settings().large_shows);
}

TEST(DemoCorpus, SizeClassesAreThoseOfThePool) {
  EXPECT_EQ(Corpus::size_class(1), 0u);
  EXPECT_EQ(Corpus::size_class(4096), 0u);
  EXPECT_EQ(Corpus::size_class(4097), 1u);
  EXPECT_EQ(Corpus::size_class(Corpus::kFileBytesMax), Corpus::kSizeClasses - 1);
  for (std::size_t c = 0; c < Corpus::kSizeClasses; ++c) {
    EXPECT_EQ(Corpus::size_class(Corpus::class_bytes(c)), c);
  }
}

}  // namespace
}  // namespace pawl::tools
