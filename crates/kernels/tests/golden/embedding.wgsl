// embedding.q4g32f16m.step.t64
@group(0) @binding(3) var<storage, read> v13: array<u32>;
@group(0) @binding(2) var<storage, read> v9: array<u32>;
@group(0) @binding(1) var<storage, read_write> v5: array<vec4<f32>>;
@group(0) @binding(0) var<storage, read> v1: array<u32>;
@compute @workgroup_size(64, 1, 1)
fn embedding(@builtin(workgroup_id) v232: vec3<u32>, @builtin(local_invocation_id) v234: vec3<u32>) {
let v249 = &v13;
let v250 = &v9;
let v251 = &v5;
let v252 = &v1;
let v3 = u32(0);
let v233 = v232[0];
let v20 = u32(4);
let v22 = &(*v250)[v20];
let v23 = *v22;
let v24 = v23 + v233;
let v25 = u32(v24);
let v29 = &(*v250)[v25];
let v30 = *v29;
let v35 = &(*v249)[v3];
let v36 = *v35;
let v37 = u32(32);
let v38 = v36 / v37;
let v43 = &(*v249)[v20];
let v44 = *v43;
let v45 = v30 - v44;
let v48 = u32(1);
let v50 = &(*v249)[v48];
let v51 = *v50;
let v52 = v45 < v51;
if v52 {
let v235 = v234[0];
let v54 = u32(4);
let v55 = v38 * v54;
let v56 = u32(64);
for(var v57: u32 = v235; v57 < v55; v57 += v56) {
let v60 = v57 / v54;
let v62 = v57 % v54;
let v65 = v45 * v38;
let v67 = v65 * v54;
let v246 = u32(0);
let v72 = v60 * v54;
let v73 = v67 + v72;
let v76 = v73 + v62;
let v79 = u32(2);
let v81 = &(*v249)[v79];
let v82 = *v81;
let v84 = v73 / v54;
let v85 = v82 + v84;
let v86 = u32(v85);
let v90 = &(*v252)[v86];
let v91 = *v90;
let v92 = bitcast<f32>(v91);
let v93 = vec2<f32>(v92);
let v94 = unpack2x16float(v91);
let v95 = v94[0];
let v96 = v94[1];
let v97 = u32(8);
let v98 = v60 * v97;
let v99 = v98 + v62;
let v104 = u32(16);
let v105 = u32(24);
let v106 = vec4<u32>(v246, v97, v104, v105);
let v107 = u32(v76);
let v111 = &(*v252)[v107];
let v112 = *v111;
let v113 = vec4<u32>(v112);
let v114 = v113 >> vec4<u32>(v106);
let v115 = u32(15);
let v116 = vec4<u32>(v115);
let v117 = v114 & v116;
let v118 = vec4<i32>(v117);
let v119 = vec4<f32>(v118);
let v120 = vec4<f32>(v95);
let v122 = vec4<f32>(v96);
let v247 = fma(v119, v120, v122);
let v126 = u32(3);
let v128 = &(*v249)[v126];
let v129 = *v128;
let v130 = bitcast<f32>(v129);
let v131 = vec4<f32>(v130);
let v132 = v247 * v131;
let v134 = v36 / v54;
let v135 = v233 * v134;
let v136 = v135 + v99;
let v137 = u32(v136);
let v141 = &(*v251)[v137];
*v141 = v132;
let v146 = v99 + v54;
let v148 = u32(12);
let v149 = u32(20);
let v150 = u32(28);
let v151 = vec4<u32>(v54, v148, v149, v150);
let v159 = v113 >> vec4<u32>(v151);
let v162 = v159 & v116;
let v163 = vec4<i32>(v162);
let v164 = vec4<f32>(v163);
let v248 = fma(v164, v120, v122);
let v177 = v248 * v131;
let v181 = v135 + v146;
let v182 = u32(v181);
let v186 = &(*v251)[v182];
*v186 = v177;
}
} else {
let v193 = u32(0);
let v194 = v44 == v193;
var<function> v230_store: bool;
let v230 = &v230_store;
if v194 {
let v197 = u32(5);
let v199 = &(*v249)[v197];
let v200 = *v199;
let v201 = v30 >= v200;
*v230 = v201;
} else {
let v203 = false;
*v230 = v203;
}
let v204 = *v230;
if v204 {
let v236 = v234[0];
let v206 = u32(4);
let v207 = v36 / v206;
let v208 = u32(64);
for(var v209: u32 = v236; v209 < v207; v209 += v208) {
let v211 = u32(2143289344);
let v212 = v30 | v211;
let v213 = bitcast<f32>(v212);
let v214 = vec4<f32>(v213);
let v217 = v233 * v207;
let v218 = v217 + v209;
let v219 = u32(v218);
let v223 = &(*v251)[v219];
*v223 = v214;
}
}
}
return;
}
