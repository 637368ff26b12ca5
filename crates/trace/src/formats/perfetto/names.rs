//! Names of the events that have their own message in Perfetto, by field number in `FtraceEvent`. Source:
//! `protos/perfetto/trace/ftrace/ftrace_event.proto` of Perfetto.

use std::collections::HashMap;

use super::wire::WireFields;
use crate::formats::fields::text;
use crate::{NameId, NameTable, Result};

/// Ranges of consecutive numbers: the first number, and the names separated by blanks.
const RUNS: &[(u32, &str)] = &[
    (3, "print sched_switch"),
    (
        11,
        "cpu_frequency cpu_frequency_limits cpu_idle clock_enable clock_disable clock_set_rate sched_wakeup \
         sched_blocked_reason sched_cpu_hotplug sched_waking ipi_entry ipi_exit ipi_raise softirq_entry \
         softirq_exit softirq_raise i2c_read i2c_write i2c_result i2c_reply smbus_read smbus_write \
         smbus_result smbus_reply lowmemory_kill irq_handler_entry irq_handler_exit sync_pt sync_timeline \
         sync_wait ext4_da_write_begin ext4_da_write_end ext4_sync_file_enter ext4_sync_file_exit \
         block_rq_issue mm_vmscan_direct_reclaim_begin mm_vmscan_direct_reclaim_end mm_vmscan_kswapd_wake \
         mm_vmscan_kswapd_sleep binder_transaction binder_transaction_received binder_set_priority \
         binder_lock binder_locked binder_unlock workqueue_activate_work workqueue_execute_end \
         workqueue_execute_start workqueue_queue_work regulator_disable regulator_disable_complete \
         regulator_enable regulator_enable_complete regulator_enable_delay regulator_set_voltage \
         regulator_set_voltage_complete cgroup_attach_task cgroup_mkdir cgroup_remount cgroup_rmdir \
         cgroup_transfer_tasks cgroup_destroy_root cgroup_release cgroup_rename cgroup_setup_root \
         mdp_cmd_kickoff mdp_commit mdp_perf_set_ot mdp_sspp_change tracing_mark_write \
         mdp_cmd_pingpong_done mdp_compare_bw mdp_perf_set_panic_luts mdp_sspp_set mdp_cmd_readptr_done \
         mdp_misr_crc mdp_perf_set_qos_luts mdp_trace_counter mdp_cmd_release_bw mdp_mixer_update \
         mdp_perf_set_wm_levels mdp_video_underrun_done mdp_cmd_wait_pingpong mdp_perf_prefill_calc \
         mdp_perf_update_bus rotator_bw_ao_as_context mm_filemap_add_to_page_cache \
         mm_filemap_delete_from_page_cache mm_compaction_begin mm_compaction_defer_compaction \
         mm_compaction_deferred mm_compaction_defer_reset mm_compaction_end mm_compaction_finished \
         mm_compaction_isolate_freepages mm_compaction_isolate_migratepages mm_compaction_kcompactd_sleep \
         mm_compaction_kcompactd_wake mm_compaction_migratepages mm_compaction_suitable \
         mm_compaction_try_to_compact_pages mm_compaction_wakeup_kcompactd suspend_resume sched_wakeup_new \
         block_bio_backmerge block_bio_bounce block_bio_complete block_bio_frontmerge block_bio_queue \
         block_bio_remap block_dirty_buffer block_getrq block_plug block_rq_abort block_rq_complete \
         block_rq_insert",
    ),
    (
        128,
        "block_rq_remap block_rq_requeue block_sleeprq block_split block_touch_buffer block_unplug \
         ext4_alloc_da_blocks ext4_allocate_blocks ext4_allocate_inode ext4_begin_ordered_truncate \
         ext4_collapse_range ext4_da_release_space ext4_da_reserve_space ext4_da_update_reserve_space \
         ext4_da_write_pages ext4_da_write_pages_extent ext4_direct_IO_enter ext4_direct_IO_exit \
         ext4_discard_blocks ext4_discard_preallocations ext4_drop_inode ext4_es_cache_extent \
         ext4_es_find_delayed_extent_range_enter ext4_es_find_delayed_extent_range_exit \
         ext4_es_insert_extent ext4_es_lookup_extent_enter ext4_es_lookup_extent_exit ext4_es_remove_extent \
         ext4_es_shrink ext4_es_shrink_count ext4_es_shrink_scan_enter ext4_es_shrink_scan_exit \
         ext4_evict_inode ext4_ext_convert_to_initialized_enter ext4_ext_convert_to_initialized_fastpath \
         ext4_ext_handle_unwritten_extents ext4_ext_in_cache ext4_ext_load_extent ext4_ext_map_blocks_enter \
         ext4_ext_map_blocks_exit ext4_ext_put_in_cache ext4_ext_remove_space ext4_ext_remove_space_done \
         ext4_ext_rm_idx ext4_ext_rm_leaf ext4_ext_show_extent ext4_fallocate_enter ext4_fallocate_exit \
         ext4_find_delalloc_range ext4_forget ext4_free_blocks ext4_free_inode \
         ext4_get_implied_cluster_alloc_exit ext4_get_reserved_cluster_alloc ext4_ind_map_blocks_enter \
         ext4_ind_map_blocks_exit ext4_insert_range ext4_invalidatepage ext4_journal_start \
         ext4_journal_start_reserved ext4_journalled_invalidatepage ext4_journalled_write_end \
         ext4_load_inode ext4_load_inode_bitmap ext4_mark_inode_dirty ext4_mb_bitmap_load \
         ext4_mb_buddy_bitmap_load ext4_mb_discard_preallocations ext4_mb_new_group_pa ext4_mb_new_inode_pa \
         ext4_mb_release_group_pa ext4_mb_release_inode_pa ext4_mballoc_alloc ext4_mballoc_discard \
         ext4_mballoc_free ext4_mballoc_prealloc ext4_other_inode_update_time ext4_punch_hole \
         ext4_read_block_bitmap_load ext4_readpage ext4_releasepage ext4_remove_blocks ext4_request_blocks \
         ext4_request_inode ext4_sync_fs ext4_trim_all_free ext4_trim_extent ext4_truncate_enter \
         ext4_truncate_exit ext4_unlink_enter ext4_unlink_exit ext4_write_begin",
    ),
    (
        230,
        "ext4_write_end ext4_writepage ext4_writepages ext4_writepages_result ext4_zero_range task_newtask \
         task_rename sched_process_exec sched_process_exit sched_process_fork sched_process_free \
         sched_process_hang sched_process_wait f2fs_do_submit_bio f2fs_evict_inode f2fs_fallocate \
         f2fs_get_data_block f2fs_get_victim f2fs_iget f2fs_iget_exit f2fs_new_inode f2fs_readpage \
         f2fs_reserve_new_block f2fs_set_page_dirty f2fs_submit_write_page f2fs_sync_file_enter \
         f2fs_sync_file_exit f2fs_sync_fs f2fs_truncate f2fs_truncate_blocks_enter \
         f2fs_truncate_blocks_exit f2fs_truncate_data_blocks_range f2fs_truncate_inode_blocks_enter \
         f2fs_truncate_inode_blocks_exit f2fs_truncate_node f2fs_truncate_nodes_enter \
         f2fs_truncate_nodes_exit f2fs_truncate_partial_nodes f2fs_unlink_enter f2fs_unlink_exit \
         f2fs_vm_page_mkwrite f2fs_write_begin f2fs_write_checkpoint f2fs_write_end alloc_pages_iommu_end \
         alloc_pages_iommu_fail alloc_pages_iommu_start alloc_pages_sys_end alloc_pages_sys_fail \
         alloc_pages_sys_start dma_alloc_contiguous_retry iommu_map_range iommu_sec_ptbl_map_range_end \
         iommu_sec_ptbl_map_range_start ion_alloc_buffer_end ion_alloc_buffer_fail \
         ion_alloc_buffer_fallback ion_alloc_buffer_start ion_cp_alloc_retry ion_cp_secure_buffer_end \
         ion_cp_secure_buffer_start ion_prefetching ion_secure_cma_add_to_pool_end \
         ion_secure_cma_add_to_pool_start ion_secure_cma_allocate_end ion_secure_cma_allocate_start \
         ion_secure_cma_shrink_pool_end ion_secure_cma_shrink_pool_start kfree kmalloc kmalloc_node \
         kmem_cache_alloc kmem_cache_alloc_node kmem_cache_free migrate_pages_end migrate_pages_start \
         migrate_retry mm_page_alloc mm_page_alloc_extfrag mm_page_alloc_zone_locked mm_page_free \
         mm_page_free_batched mm_page_pcpu_drain rss_stat ion_heap_shrink ion_heap_grow fence_init \
         fence_destroy fence_enable_signal fence_signaled clk_enable clk_disable clk_set_rate \
         binder_transaction_alloc_buf signal_deliver signal_generate oom_score_adj_update generic \
         mm_event_record sys_enter sys_exit zero gpu_frequency sde_tracing_mark_write mark_victim ion_stat \
         ion_buffer_create ion_buffer_destroy scm_call_start scm_call_end gpu_mem_total thermal_temperature \
         cdev_update cpuhp_exit cpuhp_multi_enter cpuhp_enter cpuhp_latency fastrpc_dma_stat \
         dpu_tracing_mark_write g2d_tracing_mark_write mali_tracing_mark_write dma_heap_stat cpuhp_pause \
         sched_pi_setprio sde_sde_evtlog sde_sde_perf_calc_crtc sde_sde_perf_crtc_update \
         sde_sde_perf_set_qos_luts sde_sde_perf_update_bus rss_stat_throttled netif_receive_skb \
         net_dev_xmit inet_sock_set_state tcp_retransmit_skb cros_ec_sensorhub_data napi_gro_receive_entry \
         napi_gro_receive_exit kfree_skb kvm_access_fault kvm_ack_irq kvm_age_hva kvm_age_page \
         kvm_arm_clear_debug kvm_arm_set_dreg32 kvm_arm_set_regset kvm_arm_setup_debug kvm_entry kvm_exit \
         kvm_fpu kvm_get_timer_map kvm_guest_fault kvm_handle_sys_reg kvm_hvc_arm64 kvm_irq_line kvm_mmio \
         kvm_mmio_emulate kvm_set_guest_debug kvm_set_irq kvm_set_spte_hva kvm_set_way_flush kvm_sys_access \
         kvm_test_age_hva kvm_timer_emulate kvm_timer_hrtimer_expire kvm_timer_restore_state \
         kvm_timer_save_state kvm_timer_update_irq kvm_toggle_cache kvm_unmap_hva_range kvm_userspace_exit \
         kvm_vcpu_wakeup kvm_wfx_arm64 trap_reg vgic_update_irq_pending wakeup_source_activate \
         wakeup_source_deactivate ufshcd_command ufshcd_clk_gating console drm_vblank_event \
         drm_vblank_event_delivered drm_sched_job drm_run_job drm_sched_process_job dma_fence_init \
         dma_fence_emit dma_fence_signaled dma_fence_wait_start dma_fence_wait_end f2fs_iostat \
         f2fs_iostat_latency sched_cpu_util_cfs v4l2_qbuf v4l2_dqbuf vb2_v4l2_buf_queue vb2_v4l2_buf_done \
         vb2_v4l2_qbuf vb2_v4l2_dqbuf dsi_cmd_fifo_status dsi_rx dsi_tx android_fs_dataread_end \
         android_fs_dataread_start android_fs_datawrite_end android_fs_datawrite_start android_fs_fsync_end \
         android_fs_fsync_start funcgraph_entry funcgraph_exit virtio_video_cmd virtio_video_cmd_done \
         virtio_video_resource_queue virtio_video_resource_queue_done mm_shrink_slab_start \
         mm_shrink_slab_end trusty_smc trusty_smc_done trusty_std_call32 trusty_std_call32_done \
         trusty_share_memory trusty_share_memory_done trusty_reclaim_memory trusty_reclaim_memory_done \
         trusty_irq trusty_ipc_handle_event trusty_ipc_connect trusty_ipc_connect_end trusty_ipc_write \
         trusty_ipc_poll",
    ),
    (460, "trusty_ipc_read trusty_ipc_read_end trusty_ipc_rx"),
    (
        464,
        "trusty_enqueue_nop cma_alloc_start cma_alloc_info lwis_tracing_mark_write virtio_gpu_cmd_queue \
         virtio_gpu_cmd_response mali_mali_KCPU_CQS_SET mali_mali_KCPU_CQS_WAIT_START \
         mali_mali_KCPU_CQS_WAIT_END mali_mali_KCPU_FENCE_SIGNAL mali_mali_KCPU_FENCE_WAIT_START \
         mali_mali_KCPU_FENCE_WAIT_END hyp_enter hyp_exit host_hcall host_smc host_mem_abort \
         suspend_resume_minimal mali_mali_CSF_INTERRUPT_START mali_mali_CSF_INTERRUPT_END \
         samsung_tracing_mark_write binder_command binder_return sched_switch_with_ctrs gpu_work_period \
         rpm_status panel_write_generic sched_migrate_task dpu_dsi_cmd_fifo_status dpu_dsi_rx dpu_dsi_tx \
         f2fs_background_gc f2fs_gc_begin f2fs_gc_end fastrpc_dma_free fastrpc_dma_alloc fastrpc_dma_unmap \
         fastrpc_dma_map google_icc_event google_irm_event device_pm_callback_start device_pm_callback_end \
         thermal_exynos_acpm_bulk thermal_exynos_acpm_high_overhead dcvsh_freq kgsl_gpu_frequency \
         mali_mali_PM_MCU_HCTL_CORES_DOWN_SCALE_NOTIFY_PEND mali_mali_PM_MCU_HCTL_CORES_NOTIFY_PEND \
         mali_mali_PM_MCU_HCTL_CORE_INACTIVE_PEND mali_mali_PM_MCU_HCTL_MCU_ON_RECHECK \
         mali_mali_PM_MCU_HCTL_SHADERS_CORE_OFF_PEND mali_mali_PM_MCU_HCTL_SHADERS_PEND_OFF \
         mali_mali_PM_MCU_HCTL_SHADERS_PEND_ON mali_mali_PM_MCU_HCTL_SHADERS_READY_OFF \
         mali_mali_PM_MCU_IN_SLEEP mali_mali_PM_MCU_OFF mali_mali_PM_MCU_ON \
         mali_mali_PM_MCU_ON_CORE_ATTR_UPDATE_PEND mali_mali_PM_MCU_ON_GLB_REINIT_PEND \
         mali_mali_PM_MCU_ON_HALT mali_mali_PM_MCU_ON_HWCNT_DISABLE mali_mali_PM_MCU_ON_HWCNT_ENABLE \
         mali_mali_PM_MCU_ON_PEND_HALT mali_mali_PM_MCU_ON_PEND_SLEEP mali_mali_PM_MCU_ON_SLEEP_INITIATE \
         mali_mali_PM_MCU_PEND_OFF mali_mali_PM_MCU_PEND_ON_RELOAD mali_mali_PM_MCU_POWER_DOWN \
         mali_mali_PM_MCU_RESET_WAIT bcl_irq_trigger kgsl_adreno_cmdbatch_queued \
         kgsl_adreno_cmdbatch_submitted kgsl_adreno_cmdbatch_sync kgsl_adreno_cmdbatch_retired \
         pixel_mm_kswapd_wake pixel_mm_kswapd_done sched_wakeup_task_attr devfreq_frequency kprobe_event \
         param_set_value_cpm do_sys_open open_exec block_io_start block_io_done mali_gpu_power_state \
         dpu_disp_dpu_underrun dpu_disp_vblank_irq_enable hrtimer_start hrtimer_cancel hrtimer_expire_entry \
         hrtimer_expire_exit timer_start timer_cancel timer_expire_entry timer_expire_exit \
         local_timer_entry local_timer_exit dwc3_alloc_request dwc3_complete_trb dwc3_ctrl_req \
         dwc3_ep_dequeue dwc3_ep_queue dwc3_event dwc3_free_request dwc3_gadget_ep_cmd \
         dwc3_gadget_ep_disable dwc3_gadget_ep_enable dwc3_gadget_generic_cmd dwc3_gadget_giveback \
         dwc3_prepare_trb dwc3_readl dwc3_writel cma_alloc_finish mm_alloc_contig_migrate_range_info \
         host_ffa_call dmabuf_rss_stat iommu_idmap psci_mem_protect hypervisor_host_hcall \
         hypervisor_host_smc hypervisor_hyp_exit hypervisor_iommu_idmap hypervisor_psci_mem_protect \
         hypervisor_host_mem_abort hypervisor_hyp_enter hypervisor_iommu_idmap_complete \
         hypervisor_vcpu_illegal_trap drm_sched_job_add_dep drm_sched_job_done drm_sched_job_queue \
         drm_sched_job_run drm_sched_job_unschedulable fwtp_perfetto_counter scsi_dispatch_cmd_error \
         scsi_dispatch_cmd_timeout scsi_eh_wakeup fwtp_perfetto_slice gpu_power_state gram_collision \
         f2fs_lock_elapsed_time sched_group_tracker dpu_disp_frame_done_timeout \
         dpu_disp_frame_start_timeout mm_vmscan_memcg_reclaim_begin mm_vmscan_memcg_reclaim_end \
         dpu_disp_frame_done_missing dpu_disp_frame_start_missing panel_settings_full panel_settings_lite \
         dpu_disp_dpu_line_underrun psci_domain_idle_exit psci_domain_idle_enter long_irq long_softirq",
    ),
];

pub(super) fn name_of(field: u32) -> Option<&'static str> {
    let (first, names) = RUNS.iter().take_while(|(first, _)| *first <= field).last()?;
    names.split(' ').nth((field - first) as usize)
}

/// Upper limit of ids in the kernel (`PID_MAX_LIMIT`).
const LARGEST_ID: u64 = 1 << 22;
/// Maximum length of a name in bytes; the rest of a longer one is dropped.
const LONGEST_NAME: usize = 256;

/// Processes and threads whose names the trace has contained so far.
#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    /// Process id of each thread.
    process_of: HashMap<i32, i32>,
    /// Name of each process, which is the first word of its command line.
    names: HashMap<i32, Box<[u8]>>,
    /// Result of the last lookup, because consecutive events are often of the same task.
    last: Option<(i32, [u8; 16], Option<NameId>)>,
}

impl ProcessNames {
    /// Parses a `ProcessTree`.
    pub(super) fn tree(&mut self, message: &[u8]) -> Result<()> {
        self.last = None;
        for field in WireFields::of(message) {
            let (number, value) = field?;
            match number {
                1 => self.process(value.bytes())?,
                2 => self.thread(value.bytes())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn process(&mut self, message: &[u8]) -> Result<()> {
        let (mut id, mut name) = (0, None);
        for field in WireFields::of(message) {
            match field? {
                (1, value) => id = value.number(),
                // Field 3 contains the command line, of which the first word is the name.
                (3, value) => {
                    name.get_or_insert(value.bytes());
                }
                _ => {}
            }
        }
        if let Some(name) = name.filter(|name| id <= LARGEST_ID && !name.is_empty()) {
            self.names.insert(id as i32, name[..name.len().min(LONGEST_NAME)].into());
        }
        Ok(())
    }

    fn thread(&mut self, message: &[u8]) -> Result<()> {
        let (mut id, mut process) = (0, 0);
        for field in WireFields::of(message) {
            match field? {
                (1, value) => id = value.number(),
                (3, value) => process = value.number(),
                _ => {}
            }
        }
        if id <= LARGEST_ID && process <= LARGEST_ID {
            self.process_of.insert(id as i32, process as i32);
        }
        Ok(())
    }

    /// Returns the name of the process to which a thread belongs; `None` if the process tree of the trace does not contain the name.
    pub(super) fn process_name(&self, pid: i32) -> Option<String> {
        let process = self.process_of.get(&pid).unwrap_or(&pid);
        self.names.get(process).map(|name| text(name).into_owned())
    }

    /// The id of the process name of a thread. If the process has no known name, `task` is used: the name in the event, padded with zeros.
    /// `None` if this is empty, too.
    #[inline]
    pub(super) fn name(&mut self, pid: i32, task: [u8; 16], names: &mut NameTable) -> Option<NameId> {
        match self.last {
            Some((last_pid, last_task, id)) if (last_pid, last_task) == (pid, task) => id,
            _ => {
                let process = self.process_of.get(&pid).unwrap_or(&pid);
                let end = task.iter().position(|byte| *byte == 0).unwrap_or(task.len());
                let name = self.names.get(process).map_or(&task[..end], |name| name);
                let id = (!name.is_empty()).then(|| names.intern(&text(name)));
                self.last = Some((pid, task, id));
                id
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_by_its_field() {
        for (field, name) in [
            (3, Some("print")),
            (4, Some("sched_switch")),
            (45, Some("block_rq_issue")),
            (406, Some("ufshcd_command")),
            (419, Some("f2fs_iostat")),
            (547, Some("block_io_done")),
            (1, None),
            (5, None),
            (1000, None),
        ] {
            assert_eq!(name_of(field), name, "{field}");
        }
    }

    #[test]
    fn runs_neither_overlap_nor_touch() {
        for pair in RUNS.windows(2) {
            let count = pair[0].1.split(' ').count() as u32;
            assert!(pair[0].0 + count < pair[1].0, "{}", pair[1].0);
        }
    }
}
