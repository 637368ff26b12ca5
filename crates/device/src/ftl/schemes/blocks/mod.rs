//! Block-mapped schemes: each logical block has a data block, and overwritten pages are written to log blocks until both are merged. Each
//! scheme has its own file, with the rules for where the next version of a page is written and when blocks are merged.
//!
//! Pages are always written completely: the part that the host does not write is read first, so that all valid data of a logical page is in
//! one physical page. Consecutive pages are in consecutive planes (clustered planes count as one), and each plane applies the scheme to its
//! own pages: a logical block consists of pages of one plane.

mod bast;
mod fast;
mod io;
mod superblock;

use std::collections::VecDeque;
use std::ops::Range;

use emmclab_settings::{DeviceSettings, PolicyDescription, PolicyOptions, PolicySetting};

use crate::events::{MergeKind, Observer};
use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn};
use crate::lru::LruSet;
use crate::nand::{BlockState, Nand};
use bast::BastScheme;
use fast::FastScheme;
use io::BlockSchemeIo;
use superblock::SuperblockScheme;

/// Setting for the number of log blocks per plane.
const LOG_BLOCKS: PolicySetting = PolicySetting {
    key: "log_blocks",
    about: "Log blocks of a plane (`fast`: including the sequential one); `block`: blocks of a plane that can have a replacement at the same time.",
    default: 8,
    range: (1, 1 << 16),
};

/// Setting for the number of page maps that are kept in RAM.
const CACHED_MAPS: PolicySetting = PolicySetting {
    key: "cached_maps",
    about: "Logical blocks (superblocks) of a plane whose page maps are in memory at the same time; the map of another is read from the flash first. 0 = all.",
    default: 0,
    range: (0, 1 << 12),
};

/// The assignment of logical pages to logical blocks and planes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockMapLayout {
    /// Number of pages in a logical block.
    pub pages: u32,
    /// Number of logical blocks per plane.
    pub rows: u32,
    pub blocks: u32,
    /// Number of log blocks of a plane.
    pub logs: u32,
    planes: u32,
    page_shift: u32,
}

impl BlockMapLayout {
    fn new(settings: &DeviceSettings, geometry: &Geometry) -> Self {
        let group = &geometry.groups[0];
        let rows = rows(geometry);
        Self {
            pages: group.pages_per_block,
            rows,
            blocks: rows * geometry.planes,
            logs: logs(settings),
            planes: geometry.planes,
            page_shift: group.page_shift,
        }
    }

    /// The logical block of a logical page, and the offset of the page in it.
    fn split(self, logical: u32) -> (u32, u32) {
        let in_plane = logical / self.planes;
        (in_plane / self.pages * self.planes + logical % self.planes, in_plane % self.pages)
    }

    /// The logical page at an offset in a logical block.
    fn page(self, block: u32, offset: u32) -> u32 {
        (self.row(block) * self.pages + offset) * self.planes + block % self.planes
    }

    /// The map units of a logical page, without those beyond the end of the device.
    fn units_of_page(self, logical: u32, geometry: &Geometry) -> Range<u32> {
        let first = logical << self.page_shift;
        first..(first + (1 << self.page_shift)).min(geometry.logical_units)
    }

    /// For each logical page, in order: its row (logical block within the plane), its offset in the block, and its striping position.
    fn places(self) -> impl Iterator<Item = (u32, u32, u32)> {
        let offsets = (0..self.rows).flat_map(move |row| (0..self.pages).map(move |offset| (row, offset)));
        offsets.flat_map(move |(row, offset)| (0..self.planes).map(move |stripe| (row, offset, stripe)))
    }

    /// Number of a logical block within its plane.
    fn row(self, block: u32) -> u32 {
        block / self.planes
    }
}

/// Number of log blocks of a plane; 1 if the scheme has no such setting.
pub(crate) fn logs(settings: &DeviceSettings) -> u32 {
    let kind = KINDS.iter().find(|kind| kind.name == settings.mapping.scheme);
    let own = kind.and_then(|kind| kind.settings.iter().find(|setting| setting.key == LOG_BLOCKS.key));
    own.map_or(1, |setting| setting.count(&settings.mapping.options))
}

/// Number of logical blocks of each plane.
pub(crate) fn rows(geometry: &Geometry) -> u32 {
    let group = &geometry.groups[0];
    let pages = geometry.logical_units.div_ceil(group.units_per_page());
    pages.div_ceil(geometry.planes).div_ceil(group.pages_per_block)
}

/// The flash location of a page, as block and page.
pub(crate) type Place = (BlockId, u32);

/// The state of a block-mapped scheme. These methods do not access the flash.
pub(crate) trait BlockSchemeState {
    /// Bytes of device RAM for the tables of the scheme and for `maps` page maps; 0 stands for all page maps.
    fn ram_bytes(&self, layout: BlockMapLayout, maps: u32) -> u64;
    /// Number of the page map for a row, which consists of one logical block in each plane.
    fn map_of(&self, row: u32) -> u32 {
        row
    }
    /// The state of the scheme, encoded as words of a device image.
    fn words(&self) -> Vec<u32>;
    /// Restores the state of the scheme from a device image; `None` if the words are invalid.
    fn restore(&mut self, layout: BlockMapLayout, words: &mut dyn Iterator<Item = u32>) -> Option<()>;
    /// All blocks that belong to the scheme.
    fn holds(&self, layout: BlockMapLayout) -> Vec<SchemeBlock>;
}

/// A block of a block-mapped scheme, with the range of data that it may contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemeBlock {
    pub block: BlockId,
    /// Position of the block's plane in the striping order. Positions repeat after the number of planes.
    pub stripe: u32,
    /// First row of the logical blocks whose pages the block may contain. A row is one logical block in each plane.
    pub from: u32,
    /// End of the rows; this row is not included.
    pub to: u32,
    /// Whether pages keep their offset: page `n` of the block can contain only page `n` of the logical block.
    pub in_place: bool,
}

/// How a block-mapped scheme chooses the block and the page for new data.
pub(crate) trait BlockPlacement: BlockSchemeState {
    /// Returns block and page for the next version of a logical page, after merges that are necessary for it; `None` if no block is free.
    fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place>;
}

/// The list of block-mapped schemes. Each scheme has a file in this folder and an entry in the list below.
macro_rules! schemes {
    ($($name:ident),+) => {
        /// All block-mapped schemes.
        pub(super) static KINDS: &[PolicyDescription] = &[$($name::KIND),+];

        #[derive(Clone)]
        #[expect(clippy::enum_variant_names, reason = "a variant has the name of its type")]
        enum AnyBlockScheme {
            $($name($name)),+
        }

        impl AnyBlockScheme {
            /// Creates the scheme that the settings name; `None` if that scheme is not block-mapped.
            fn new(settings: &DeviceSettings, layout: BlockMapLayout) -> Option<Self> {
                let (name, options) = (settings.mapping.scheme.as_str(), &settings.mapping.options);
                $(if name == $name::KIND.name {
                    return Some(AnyBlockScheme::$name($name::new(options, layout)));
                })+
                None
            }

            fn tables(&self) -> &dyn BlockSchemeState {
                match self {
                    $(AnyBlockScheme::$name(scheme) => scheme),+
                }
            }

            fn tables_mut(&mut self) -> &mut dyn BlockSchemeState {
                match self {
                    $(AnyBlockScheme::$name(scheme) => scheme),+
                }
            }

            fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place> {
                match self {
                    $(AnyBlockScheme::$name(scheme) => scheme.place(io, logical)),+
                }
            }
        }
    };
}

schemes!(BlockScheme, BastScheme, FastScheme, SuperblockScheme);

/// A block-mapped scheme, and the state that all such schemes share.
#[derive(Clone)]
pub(crate) struct BlockMapping {
    layout: BlockMapLayout,
    cache: PageMapCache,
    scheme: AnyBlockScheme,
}

impl BlockMapping {
    /// Creates the block-mapped scheme that the settings name; `None` if that scheme is not block-mapped.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Self> {
        let layout = BlockMapLayout::new(settings, geometry);
        let cache = PageMapCache::new(CACHED_MAPS.count(&settings.mapping.options), layout.rows);
        let scheme = AnyBlockScheme::new(settings, layout)?;
        Some(Self { layout, cache, scheme })
    }

    /// The state of the scheme, encoded as words of a device image.
    pub fn words(&self) -> Vec<u32> {
        self.scheme.tables().words()
    }

    /// Restores the state of the scheme from a device image; `None` if the words are invalid.
    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        self.scheme.tables_mut().restore(self.layout, words)
    }

    /// Bytes of device RAM that the mapping table needs.
    pub fn ram_bytes(&self) -> u64 {
        self.scheme.tables().ram_bytes(self.layout, self.cache.most())
    }

    /// Removes all page maps from RAM.
    pub fn power_cycle(&mut self) {
        self.cache.clear();
    }

    /// Describes the first inconsistency between the scheme and the flash; `None` if there is none.
    pub fn fault(&self, core: &FtlCore, nand: &Nand) -> Option<String> {
        let layout = self.layout;
        let mut by_block = vec![None; nand.block_count()];
        for held in &self.scheme.tables().holds(layout) {
            if held.block.index() >= nand.block_count() {
                return Some(format!("the map contains block {}, which does not exist", held.block));
            }
            let entry = nand.block(held.block);
            let in_use = matches!(entry.state, BlockState::Open | BlockState::Full);
            if entry.plane != core.geometry.striped(held.stripe) || !in_use {
                return Some(format!("the map contains block {}, whose entry is {entry:?}", held.block));
            }
            let first_stripe = SchemeBlock { stripe: held.stripe % layout.planes, ..*held };
            if by_block[held.block.index()].replace(first_stripe).is_some() {
                return Some(format!("the map contains block {} twice", held.block));
            }
        }
        for (logical, (row, offset, stripe)) in (0..).zip(layout.places()) {
            for unit in layout.units_of_page(logical, &core.geometry) {
                let Some(ppn) = core.tables.lookup(Lpn(unit)) else { continue };
                let page = core.geometry.offset_of(ppn) >> layout.page_shift;
                let is_mapped = by_block[core.geometry.block_of(ppn).index()].is_some_and(|held| {
                    let of_row = held.stripe == stripe && (held.from..held.to).contains(&row);
                    of_row && (!held.in_place || page == offset)
                });
                if !is_mapped {
                    return Some(format!("unit {unit} is stored at {ppn}, which does not match the map"));
                }
            }
        }
        None
    }
}

/// A block number, encoded as a word of a device image.
fn number(BlockId(block): BlockId) -> u32 {
    block
}

/// A list, encoded as words of a device image: its length, then its elements.
fn list(words: impl ExactSizeIterator<Item = u32>) -> impl Iterator<Item = u32> {
    std::iter::once(words.len() as u32).chain(words)
}

fn read_list(words: &mut dyn Iterator<Item = u32>, most: usize) -> Option<Vec<u32>> {
    let count = words.next()? as usize;
    if count > most {
        return None;
    }
    let out: Vec<u32> = words.take(count).collect();
    (out.len() == count).then_some(out)
}

/// Reads a table of fixed size from the words of a device image.
fn read_table(words: &mut dyn Iterator<Item = u32>, table: &mut [BlockId]) -> Option<()> {
    for entry in table {
        *entry = BlockId(words.next()?);
    }
    Some(())
}

/// The allocated blocks in a table of data blocks.
fn data_blocks(layout: BlockMapLayout, table: &[BlockId]) -> impl Iterator<Item = SchemeBlock> {
    table.iter().enumerate().filter(|(_, block)| **block != BlockId::NONE).map(move |(logical, block)| {
        let from = layout.row(logical as u32);
        SchemeBlock { block: *block, stripe: logical as u32, from, to: from + 1, in_place: true }
    })
}

/// A replacement block that is partly written.
#[derive(Clone, Copy, Debug)]
struct ReplacementBlock {
    logical_block: u32,
    block: BlockId,
    /// Whether valid pages were copied to the replacement block before a page of the host was written to it.
    copied: bool,
}

/// Block mapping: page `n` of a logical block is in page `n` of its block. An overwrite starts a replacement block. Valid pages before the
/// overwritten one are copied at once. Valid pages after it are copied when the replacement block is completed, so a sequential overwrite
/// copies nothing. These are the replacement blocks of NFTL (Ban, US patent 5,937,425).
#[derive(Clone)]
pub(crate) struct BlockScheme {
    data: Vec<BlockId>,
    /// For each plane, the replacement blocks, the oldest at the front.
    open: Vec<VecDeque<ReplacementBlock>>,
}

impl BlockScheme {
    pub const KIND: PolicyDescription = PolicyDescription {
        name: "block",
        about: "A logical block is stored in one physical block, each page at its own offset; an overwrite goes to a replacement block, which is completed later.",
        settings: &[LOG_BLOCKS],
    };

    pub fn new(_: &PolicyOptions, layout: BlockMapLayout) -> Self {
        let open = vec![VecDeque::with_capacity(layout.logs as usize); layout.planes as usize];
        Self { data: vec![BlockId::NONE; layout.blocks as usize], open }
    }

    fn complete<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, replacement: ReplacementBlock) -> Option<()> {
        let ReplacementBlock { logical_block, block, copied } = replacement;
        let kind = io.merge_blocks(logical_block, &mut self.data[logical_block as usize], block)?;
        io.count_merge(if copied { MergeKind::Full } else { kind });
        self.open[(logical_block % io.layout.planes) as usize].retain(|replacement| replacement.logical_block != logical_block);
        Some(())
    }

    /// Copies the valid pages before page `to` into a replacement block, from its first unwritten page on.
    fn copy<L: Observer>(io: &mut BlockSchemeIo<'_, L>, replacement: &mut ReplacementBlock, to: u32) {
        for offset in io.written_pages(replacement.block)..to {
            let logical = io.layout.page(replacement.logical_block, offset);
            if let Some(from) = io.place_of_page(logical) {
                io.copy_page((replacement.block, offset), from, logical);
                replacement.copied = true;
            }
        }
    }
}

impl BlockPlacement for BlockScheme {
    fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place> {
        let layout = io.layout;
        let (block, offset) = layout.split(logical);
        let plane = (block % layout.planes) as usize;
        loop {
            let index = self.open[plane].iter().position(|open| open.logical_block == block);
            if let Some(index) = index {
                let replacement = &mut self.open[plane][index];
                if io.written_pages(replacement.block) <= offset {
                    Self::copy(io, replacement, offset);
                    return Some((replacement.block, offset));
                }
                let replacement = *replacement;
                self.complete(io, replacement)?;
                continue;
            }
            let data = io.data_block(&mut self.data[block as usize], block)?;
            if io.written_pages(data) <= offset {
                return Some((data, offset));
            }
            if self.open[plane].len() as u32 == layout.logs {
                let oldest = *self.open[plane].front()?;
                self.complete(io, oldest)?;
            }
            let fresh = io.claim(block)?;
            self.open[plane].push_back(ReplacementBlock { logical_block: block, block: fresh, copied: false });
        }
    }
}

impl BlockSchemeState for BlockScheme {
    fn ram_bytes(&self, layout: BlockMapLayout, _: u32) -> u64 {
        // RAM contains a block number for each logical block and each replacement block.
        4 * (u64::from(layout.blocks) + u64::from(layout.logs) * u64::from(layout.planes))
    }

    fn words(&self) -> Vec<u32> {
        let mut out: Vec<u32> = self.data.iter().copied().map(number).collect();
        for open in &self.open {
            out.extend(list(open.iter().map(|open| open.logical_block)));
            out.extend(open.iter().flat_map(|open| [open.block.0, u32::from(open.copied)]));
        }
        out
    }

    fn restore(&mut self, _: BlockMapLayout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        let planes = self.open.len();
        for (plane, open) in self.open.iter_mut().enumerate() {
            for logical_block in read_list(words, self.data.len())? {
                let known = (logical_block as usize) < self.data.len() && logical_block as usize % planes == plane;
                let twice = open.iter().any(|open| open.logical_block == logical_block);
                (known && !twice).then_some(())?;
                let (block, copied) = (BlockId(words.next()?), words.next()? == 1);
                open.push_back(ReplacementBlock { logical_block, block, copied });
            }
        }
        Some(())
    }

    fn holds(&self, layout: BlockMapLayout) -> Vec<SchemeBlock> {
        let open = self.open.iter().flatten().map(|open| {
            let from = layout.row(open.logical_block);
            SchemeBlock { block: open.block, stripe: open.logical_block, from, to: from + 1, in_place: true }
        });
        data_blocks(layout, &self.data).chain(open).collect()
    }
}

/// Tracks which page maps are in RAM.
#[derive(Clone, Debug)]
struct PageMapCache {
    /// Maximum number of page maps in RAM; 0 = unlimited.
    most: u32,
    maps: LruSet,
}

impl PageMapCache {
    pub fn new(most: u32, maps: u32) -> Self {
        Self { most, maps: LruSet::new(if most > 0 { maps as usize } else { 0 }, most as usize) }
    }

    /// Maximum number of page maps in RAM; 0 = unlimited.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Marks a page map as used. Returns false if the map must be read from the flash first.
    pub fn touch(&mut self, map: u32) -> bool {
        if self.maps.touch(map) {
            return true;
        }
        if self.maps.len() == self.most as usize {
            self.maps.pop();
        }
        self.maps.push(map);
        false
    }

    /// Removes all page maps from RAM.
    pub fn clear(&mut self) {
        self.maps.clear();
    }
}
